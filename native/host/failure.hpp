// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What went wrong, as text and numbers, for sar_last_error and sar_last_failure.
#ifndef SPARK_ALLREDUCE_HOST_FAILURE_HPP
#define SPARK_ALLREDUCE_HOST_FAILURE_HPP

#include <cstddef>
#include <cstdint>

#include "spark_allreduce.h"

namespace sar {

// A message that is built piece by piece and cut where it gets too long.
class Message {
 public:
  Message() { text_[0] = 0; }
  [[gnu::format(printf, 2, 3)]] Message &append(const char *format, ...);
  // "rank 3" or "ranks 1, 3": the bits of `ranks`.
  Message &append_ranks(uint32_t ranks);
  const char *text() const { return text_; }

 private:
  char text_[SAR_MESSAGE_BYTES];
  size_t length_ = 0;
};

struct Failure {
  sar_failure facts{SAR_SYSTEM_ERROR, SAR_COLLECTIVE_NONE, 0, -1, -1, 0, 0, 0, 0, 0};
  Message message;

  explicit Failure(sar_status status) { facts.status = status; }
  sar_status status() const { return static_cast<sar_status>(facts.status); }
};

// Makes it the calling thread's last failure, and returns its status.
sar_status remember(const Failure &failure);

// Remembers a failure that concerns this call only.
[[gnu::format(printf, 2, 3)]] sar_status refuse(sar_status status, const char *format, ...);

const char *last_message();
const sar_failure &last_facts();

const char *status_name(uint32_t status);
const char *type_name(uint32_t type);
const char *op_name(uint32_t op);
const char *schedule_name(uint32_t schedule);
const char *collective_name(uint32_t collective);

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_FAILURE_HPP
