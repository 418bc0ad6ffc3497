// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Which schedule SAR_AUTO takes: a table, built in or measured for the machine at hand.
#ifndef SPARK_ALLREDUCE_HOST_AUTO_TABLE_HPP
#define SPARK_ALLREDUCE_HOST_AUTO_TABLE_HPP

#include <stddef.h>

#include <cstdint>

#include "spark_allreduce.h"

namespace sar {

class AutoTable {
 public:
  // What sar_comm_set_auto_table does. A refused table changes nothing.
  sar_status set(const sar_auto_row *rows, size_t count);

  // The first row whose world size and bytes are not exceeded, else load-reduce/store.
  sar_schedule choose(uint32_t world_size, uint64_t bytes) const;

  // What was set; no rows: the built-in table counts.
  const sar_auto_row *rows() const { return rows_; }
  uint32_t count() const { return count_; }

 private:
  sar_auto_row rows_[SAR_MAX_AUTO_ROWS];
  uint32_t count_ = 0;  // 0: the built-in table
};

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_AUTO_TABLE_HPP
