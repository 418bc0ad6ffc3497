// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// A part of a file, mapped shared: memory that this library did not allocate.
#ifndef SPARK_ALLREDUCE_HOST_FILE_MAPPING_HPP
#define SPARK_ALLREDUCE_HOST_FILE_MAPPING_HPP

#include <cstdint>

#include "spark_allreduce.h"

namespace sar {

// Which file it must be, however it is called.
struct FileIdentity {
  uint64_t device;
  uint64_t inode;
};

class FileMapping {
 public:
  FileMapping() = default;
  ~FileMapping() { unmap(); }
  FileMapping(const FileMapping &) = delete;
  FileMapping &operator=(const FileMapping &) = delete;

  // Maps `bytes` bytes from `offset` on of a regular file that belongs to this user. If `expected`
  // is not null, it must be that very file; `found` is the one it was. A failure is remembered.
  sar_status map(const char *path, uint64_t offset, uint64_t bytes, const FileIdentity *expected,
                 FileIdentity &found);
  void unmap();

  char *base() const { return base_; }

 private:
  char *base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_FILE_MAPPING_HPP
