// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Shared memory segments: creating one's own, opening a peer's, removing what dead processes left.
//
// A process maps a segment once, however many of its communicators use it, so ranks in one process
// see each other's memory at the same addresses.
#ifndef SPARK_ALLREDUCE_HOST_SEGMENT_HPP
#define SPARK_ALLREDUCE_HOST_SEGMENT_HPP

#include <cstdint>

#include "layout.hpp"
#include "system.hpp"

namespace sar {

struct MappedSegment;

// Shares in one mapping; the last one to go unmaps it.
class SegmentReference {
 public:
  SegmentReference() = default;
  explicit SegmentReference(MappedSegment *segment) : segment_(segment) {}
  ~SegmentReference() { release(); }
  SegmentReference(const SegmentReference &) = delete;
  SegmentReference &operator=(const SegmentReference &) = delete;
  SegmentReference &operator=(SegmentReference &&other) noexcept {
    release();
    segment_ = other.segment_;
    other.segment_ = nullptr;
    return *this;
  }

  char *base() const;
  explicit operator bool() const { return segment_ != nullptr; }

 private:
  void release();

  MappedSegment *segment_ = nullptr;
};

// Creates and maps the segment that `handle` describes (all but its name, which is filled in),
// zeroed and with every page allocated. A failure is remembered.
sar_status create_segment(Handle &handle, SegmentReference &segment);

// Opens and maps a peer's segment. What is found must be what `handle` says, and must belong to
// this user. A failure is remembered.
sar_status open_segment(const Handle &handle, SegmentReference &segment);

// Removes the name, if it is still there. Mappings stay.
void unlink_segment(const Handle &handle);

// True if the handle's name is the one that create_segment would have made for its process.
bool has_proper_name(const Handle &handle);

sar_status sweep_segments(uint32_t &removed);

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_SEGMENT_HPP
