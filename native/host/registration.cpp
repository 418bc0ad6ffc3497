// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Registering memory of others. What the ranks have to tell each other goes through the
// announcements in their signal pads: no exchange through Spark.
#include <string.h>

#include "collective.hpp"

namespace sar {

namespace {

// Once, into a copy: what is checked is what is used, whatever the owner writes meanwhile.
Announcement read_once(const Announcement &shared) {
  Announcement copy;
  memcpy(&copy, &shared, sizeof copy);
  asm volatile("" : "+m"(copy));  // or the compiler might look at the original again
  copy.path[kPathBytes - 1] = 0;
  copy.message[SAR_MESSAGE_BYTES - 1] = 0;
  return copy;
}

void note_failure(Announcement &announcement) {
  strncpy(announcement.message, last_message(), sizeof announcement.message - 1);
  announcement.message[sizeof announcement.message - 1] = 0;
}

}  // namespace

sar_status Collective::begin_registration(int64_t timeout_ns) {
  if (timeout_ns <= 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the time-out must be above zero, but is %lld ns",
                  collective_name(call_.collective), static_cast<long long>(timeout_ns));
  }
  if (const sar_status status = comm_.check_open(call_.collective); status != SAR_OK) {
    return status;
  }
  comm_.begin(call_.collective, timeout_ns);
  return SAR_OK;
}

sar_status Collective::register_file(const char *path, uint64_t offset, int64_t timeout_ns,
                                     void **address) {
  if (call_.count == 0 || call_.count >= uint64_t{1} << Location::kRegionShift) {
    return refuse(SAR_INVALID_ARGUMENT, "register: %llu bytes cannot be registered",
                  static_cast<unsigned long long>(call_.count));
  }
  if (offset % kPageBytes != 0) {
    return refuse(SAR_INVALID_ARGUMENT, "register: the offset %llu is no multiple of %llu",
                  static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(kPageBytes));
  }
  if (strlen(path) >= kPathBytes) {
    return refuse(SAR_INVALID_ARGUMENT, "register: the path has more than %u bytes",
                  kPathBytes - 1);
  }
  uint32_t number = 1;
  while (number < kRegions && comm_.region_bytes(number) != 0) {
    number++;
  }
  if (number == kRegions) {
    return refuse(SAR_INVALID_ARGUMENT, "register: %u regions are registered, and no more can be",
                  SAR_MAX_REGIONS);
  }
  if (const sar_status status = begin_registration(timeout_ns); status != SAR_OK) {
    return status;
  }
  Region &region = comm_.region(number);
  const sar_status status = map_region(region, path, offset);
  comm_.end(status, 0);
  if (status != SAR_OK) {
    for (FileMapping &mapping : region.mappings) {
      mapping.unmap();
    }
    return status;
  }
  region.bytes = call_.count;
  comm_.update_regions_end();
  *address = comm_.region_base(rank_, number);
  return SAR_OK;
}

sar_status Collective::map_region(Region &region, const char *path, uint64_t offset) {
  Announcement &mine = comm_.announcement(rank_);
  FileIdentity found{};
  // Peers can write into this rank's announcement too: what it knows itself stays in locals.
  const sar_status opened =
      region.mappings[comm_.member(rank_)].map(path, offset, call_.count, nullptr, found);
  if (opened != SAR_OK) {
    note_failure(mine);
  }
  mine.opened_status = static_cast<uint32_t>(opened);
  mine.mapped_status = SAR_OK;
  mine.device = found.device;
  mine.inode = found.inode;
  mine.offset = offset;
  strcpy(mine.path, path);
  if (const sar_status status = arrive(false); status != SAR_OK) {
    return status;
  }
  if (const sar_status status = first_failure(&Announcement::opened_status, opened);
      status != SAR_OK) {
    return status;
  }
  sar_status mapped = SAR_OK;
  for (uint32_t i = 1; i < ranks_ && mapped == SAR_OK; i++) {
    const uint32_t peer = (rank_ + i) % ranks_;
    const Announcement theirs = read_once(comm_.announcement(peer));
    const FileIdentity expected{theirs.device, theirs.inode};
    const bool aligned = theirs.offset % kPageBytes == 0;
    mapped = aligned ? region.mappings[comm_.member(peer)].map(theirs.path, theirs.offset,
                                                               call_.count, &expected, found)
                     : refuse(SAR_SYSTEM_ERROR, "rank %u announced a damaged offset", peer);
    if (mapped != SAR_OK) {
      note_failure(mine);
    }
  }
  mine.mapped_status = static_cast<uint32_t>(mapped);
  if (const sar_status status = comm_.step(); status != SAR_OK) {
    return status;
  }
  return first_failure(&Announcement::mapped_status, mapped);
}

// All ranks see the same, so all fail or none. Nothing is aborted: all are still in step.
sar_status Collective::first_failure(uint32_t Announcement::*status, sar_status own) const {
  for (uint32_t peer = 0; peer < ranks_; peer++) {
    const Announcement theirs = read_once(comm_.announcement(peer));
    if ((peer == rank_ ? static_cast<uint32_t>(own) : theirs.*status) != SAR_OK) {
      return refuse(SAR_SYSTEM_ERROR, "register: rank %u %s; nothing was registered", peer,
                    theirs.message);
    }
  }
  return SAR_OK;
}

sar_status Collective::deregister(uint32_t number, int64_t timeout_ns) {
  if (const sar_status status = begin_registration(timeout_ns); status != SAR_OK) {
    return status;
  }
  // Once all have arrived, none uses it any more.
  const sar_status status = arrive(false);
  comm_.end(status, 0);
  if (status != SAR_OK) {
    return status;
  }
  Region &region = comm_.region(number);
  for (FileMapping &mapping : region.mappings) {
    mapping.unmap();
  }
  region.bytes = 0;
  comm_.update_regions_end();
  return SAR_OK;
}

}  // namespace sar
