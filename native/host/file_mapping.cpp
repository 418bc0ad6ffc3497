// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "file_mapping.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.hpp"
#include "layout.hpp"
#include "system.hpp"

namespace sar {

sar_status FileMapping::map(const char *path, uint64_t offset, uint64_t bytes,
                            const FileIdentity *expected, FileIdentity &found) {
  const FileDescriptor file(open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    return refuse(SAR_SYSTEM_ERROR, "could not open %s: %s", path,
                  errno == ELOOP ? "it is a symbolic link" : error_and_cure(errno));
  }
  FileFacts facts;
  if (const int error = file_facts(file.get(), nullptr, facts); error != 0) {
    return refuse(SAR_SYSTEM_ERROR, "could not examine %s: %s", path, error_text(error));
  }
  if (!facts.regular || facts.owner != geteuid()) {
    return refuse(SAR_SYSTEM_ERROR, "%s is %s", path,
                  facts.regular ? "of another user" : "no regular file");
  }
  found = FileIdentity{facts.device, facts.inode};
  if (expected != nullptr && (found.device != expected->device || found.inode != expected->inode)) {
    return refuse(SAR_SYSTEM_ERROR, "%s is another file here than for the rank that named it",
                  path);
  }
  // An access behind the end of the file would kill the process.
  if (facts.bytes < offset || facts.bytes - offset < bytes) {
    return refuse(SAR_SYSTEM_ERROR, "%s has %llu bytes, too few for %llu from %llu on", path,
                  static_cast<unsigned long long>(facts.bytes),
                  static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset));
  }
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(),
                    static_cast<off_t>(offset));
  if (base == MAP_FAILED) {
    return refuse(SAR_SYSTEM_ERROR, "could not map %llu bytes of %s: %s",
                  static_cast<unsigned long long>(bytes), path, error_text(errno));
  }
  base_ = static_cast<char *>(base);
  bytes_ = bytes;
  return SAR_OK;
}

void FileMapping::unmap() {
  if (base_ != nullptr) {
    munmap(base_, bytes_);
    base_ = nullptr;
  }
}

}  // namespace sar
