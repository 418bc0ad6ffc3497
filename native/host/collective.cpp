// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What every collective does before its data moves: check the own call, arrive, compare the calls
// of all ranks.
#include "collective.hpp"

#include <stdio.h>
#include <string.h>

#include "numerics.hpp"

namespace sar {

namespace {

// Up to here a copy into staging, which saves a barrier, is cheaper than the barrier.
constexpr uint64_t kSmallBytes = 4096;

// A call of up to so many bytes looks at the clock only if it has to wait: two looks would be a
// tenth of its time.
constexpr uint64_t kBriefBytes = 16 << 10;

// What passes through staging does so in chunks that stay in the second-level cache from the copy
// in to the copy out. Measured, docs/decisions/0020.
constexpr uint64_t kCachedBytes = 256 << 10;

constexpr uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// More than any address space; so sums of two sizes never overflow.
constexpr uint64_t kLargestBuffer = uint64_t{1} << 60;

bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

Collective::Collective(Communicator &communicator, const Call &call)
    : comm_(communicator),
      call_(call),
      total_(communicator.take_total(call.count)),
      rank_(communicator.rank()),
      ranks_(communicator.world_size()),
      element_bytes_(element_bytes(call.type)),
      in_(static_cast<const char *>(call.in)),
      out_(static_cast<char *>(call.out)) {}

sar_status Collective::run(int64_t timeout_ns) {
  if (timeout_ns <= 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the time-out must be above zero, but is %lld ns",
                  collective_name(call_.collective), static_cast<long long>(timeout_ns));
  }
  if (const sar_status status = comm_.check_open(call_.collective); status != SAR_OK) {
    return status;
  }
  if (const sar_status status = check(); status != SAR_OK) {
    return status;
  }
  const uint64_t bytes = call_.count * element_bytes_;
  comm_.begin(call_.collective, timeout_ns, bytes <= kBriefBytes);
  const sar_status status = take_part();
  comm_.end(status, bytes);
  return status;
}

sar_status Collective::take_part() {
  switch (call_.collective) {
    case SAR_COLLECTIVE_ALL_REDUCE:
      return all_reduce();
    case SAR_COLLECTIVE_REDUCE_SCATTER:
      return reduce_scatter();
    case SAR_COLLECTIVE_ALL_GATHER:
      return all_gather();
    case SAR_COLLECTIVE_BROADCAST:
      return broadcast();
    default:
      return arrive(false);
  }
}

sar_status Collective::check() {
  if (call_.collective == SAR_COLLECTIVE_BARRIER) {
    return SAR_OK;
  }
  const char *name = collective_name(call_.collective);
  if (element_bytes_ == 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no data type", name, call_.type);
  }
  if (static_cast<uint32_t>(call_.op) >= kReduceOps) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no reduce operation", name, call_.op);
  }
  if (static_cast<uint32_t>(call_.schedule) > SAR_LOW_LATENCY) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no schedule", name, call_.schedule);
  }
  if (call_.root >= ranks_) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: root %u, but there are ranks 0 to %u only", name,
                  call_.root, ranks_ - 1);
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(call_.count, element_bytes_ * ranks_, &bytes) ||
      bytes > kLargestBuffer) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %llu elements are more than memory can hold", name,
                  static_cast<unsigned long long>(call_.count));
  }
  if (call_.schedule == SAR_LOW_LATENCY && call_.count * element_bytes_ > kLowLatencyBytes) {
    return refuse(SAR_UNSUPPORTED,
                  "%s: the low-latency schedule carries %llu bytes at most, not %llu; use auto",
                  name, static_cast<unsigned long long>(kLowLatencyBytes),
                  static_cast<unsigned long long>(call_.count * element_bytes_));
  }
  const bool wide_input = call_.collective == SAR_COLLECTIVE_REDUCE_SCATTER;
  const bool wide_output = call_.collective == SAR_COLLECTIVE_ALL_GATHER;
  const bool reads = call_.collective != SAR_COLLECTIVE_BROADCAST || call_.root == rank_;
  if (reads) {
    if (const sar_status status =
            check_buffer("input", in_, call_.count * (wide_input ? ranks_ : 1), input_);
        status != SAR_OK) {
      return status;
    }
  }
  if (const sar_status status =
          check_buffer("output", out_, call_.count * (wide_output ? ranks_ : 1), output_);
      status != SAR_OK) {
    return status;
  }
  return reads ? check_overlap() : SAR_OK;
}

sar_status Collective::check_buffer(const char *name, const void *address, uint64_t elements,
                                    Buffer &buffer) {
  buffer.bytes = elements * element_bytes_;
  if (elements == 0) {
    buffer.registered = true;
    return SAR_OK;
  }
  const char *collective = collective_name(call_.collective);
  if (address == nullptr) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the %s is NULL, but has %llu elements", collective,
                  name, static_cast<unsigned long long>(elements));
  }
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (start % element_bytes_ != 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the %s at %p is not aligned to %s", collective, name,
                  address, type_name(call_.type));
  }
  for (uint32_t region = 0; region < comm_.regions_end(); region++) {
    const uint64_t region_bytes = comm_.region_bytes(region);
    if (region_bytes == 0) {
      continue;
    }
    const char *base = comm_.region_base(rank_, region);
    const uint64_t offset = start - reinterpret_cast<uintptr_t>(base);
    if (offset < region_bytes && buffer.bytes <= region_bytes - offset) {
      buffer.registered = true;
      buffer.location = Location{region, offset};
      return SAR_OK;
    }
    if (overlap(address, buffer.bytes, base, region_bytes)) {
      return refuse(SAR_INVALID_ARGUMENT,
                    "%s: the %s of %llu bytes crosses the border of the %s of %llu bytes",
                    collective, name, static_cast<unsigned long long>(buffer.bytes),
                    region == kArenaRegion ? "arena" : "registered memory",
                    static_cast<unsigned long long>(region_bytes));
    }
  }
  return SAR_OK;
}

// Equal where the collective allows it, or disjoint.
sar_status Collective::check_overlap() {
  if (call_.count == 0) {
    return SAR_OK;
  }
  const uint64_t own = rank_ * call_.count * element_bytes_;
  const char *same_in = in_;
  const char *same_out = out_;
  if (call_.collective == SAR_COLLECTIVE_REDUCE_SCATTER) {
    same_in += own;
  } else if (call_.collective == SAR_COLLECTIVE_ALL_GATHER) {
    same_out += own;
  }
  if (same_in == same_out || !overlap(in_, input_.bytes, out_, output_.bytes)) {
    return SAR_OK;
  }
  return refuse(
      SAR_INVALID_ARGUMENT,
      "%s: input (%p, %llu bytes) and output (%p, %llu bytes) overlap, but are not in place",
      collective_name(call_.collective), call_.in, static_cast<unsigned long long>(input_.bytes),
      call_.out, static_cast<unsigned long long>(output_.bytes));
}

sar_status Collective::arrive(bool filled) {
  // A low-latency call's line has no places, for nobody to use.
  const bool has_places = wanted_ != SAR_LOW_LATENCY;
  const uint32_t flags = (has_places && input_.registered ? kInputRegistered : 0u) |
                         (has_places && output_.registered ? kOutputRegistered : 0u) |
                         (filled ? kFilledEarly : 0u);
  uint64_t places[2] = {input_.location.packed(), output_.location.packed()};
  if (!has_places && call_.count != 0) {
    static_assert(sizeof places == kLowLatencyBytes);
    memcpy(places, in_, call_.count * element_bytes_);
  }
  const CallFields mine{call_.count,
                        total_,
                        places[0],
                        places[1],
                        static_cast<uint32_t>(call_.collective),
                        static_cast<uint32_t>(call_.type),
                        static_cast<uint32_t>(call_.op),
                        static_cast<uint32_t>(call_.schedule),
                        call_.root,
                        flags,
                        comm_.epoch(),
                        static_cast<uint32_t>(wanted_)};
  if (const sar_status status = comm_.arrive(mine, fields_); status != SAR_OK) {
    return status;
  }
  if (const sar_status status = compare_fields(); status != SAR_OK) {
    return status;
  }
  return check_offsets();
}

sar_status Collective::mismatch(uint32_t rank, const char *name, const char *first,
                                const char *second) {
  Failure cause = comm_.failure(SAR_MISMATCH);
  cause.message.append(
      "the ranks called different collectives: in call number %llu, rank 0 has %s %s, but rank %u "
      "has %s %s; nothing was written; all ranks must make the same calls in the same order",
      static_cast<unsigned long long>(comm_.sequence()), name, first, rank, name, second);
  return comm_.fail(cause);
}

sar_status Collective::compare_field(const char *name, uint32_t CallFields::*field,
                                     const char *(*value_name)(uint32_t)) {
  for (uint32_t rank = 1; rank < ranks_; rank++) {
    const uint32_t first = fields_[0].*field;
    const uint32_t second = fields_[rank].*field;
    if (first != second) {
      char numbers[2][16];
      snprintf(numbers[0], sizeof numbers[0], "%u", first);
      snprintf(numbers[1], sizeof numbers[1], "%u", second);
      return mismatch(rank, name, value_name != nullptr ? value_name(first) : numbers[0],
                      value_name != nullptr ? value_name(second) : numbers[1]);
    }
  }
  return SAR_OK;
}

sar_status Collective::compare_count(const char *name, uint64_t CallFields::*field) {
  for (uint32_t rank = 1; rank < ranks_; rank++) {
    const uint64_t first = fields_[0].*field;
    const uint64_t second = fields_[rank].*field;
    if (first != second) {
      char numbers[2][24];
      snprintf(numbers[0], sizeof numbers[0], "%llu", static_cast<unsigned long long>(first));
      snprintf(numbers[1], sizeof numbers[1], "%llu", static_cast<unsigned long long>(second));
      return mismatch(rank, name, numbers[0], numbers[1]);
    }
  }
  return SAR_OK;
}

bool Collective::fields_agree() const {
  const CallFields &first = fields_[0];
  uint64_t differences = 0;
  for (uint32_t rank = 1; rank < ranks_; rank++) {
    const CallFields &other = fields_[rank];
    differences |= (first.count ^ other.count) | (first.total ^ other.total) |
                   (first.collective ^ other.collective) | (first.type ^ other.type) |
                   (first.op ^ other.op) | (first.schedule ^ other.schedule) |
                   (first.root ^ other.root) | (first.chosen ^ other.chosen) |
                   (first.epoch ^ other.epoch);
  }
  return differences == 0;
}

sar_status Collective::compare_fields() {
  if (fields_agree()) {
    return SAR_OK;
  }
  // The collective first: the other fields of different collectives differ for no other reason.
  const struct {
    const char *name;
    uint32_t CallFields::*field;
    const char *(*value_name)(uint32_t);
  } fields[] = {{"collective", &CallFields::collective, collective_name},
                {"data type", &CallFields::type, type_name},
                {"reduce op", &CallFields::op, op_name},
                {"schedule", &CallFields::schedule, schedule_name},
                {"root", &CallFields::root, nullptr}};
  for (const auto &field : fields) {
    if (const sar_status status = compare_field(field.name, field.field, field.value_name);
        status != SAR_OK) {
      return status;
    }
  }
  // The count of the whole call first: it is the one that the callers know.
  if (const sar_status status = compare_count("count", &CallFields::total); status != SAR_OK) {
    return status;
  }
  if (const sar_status status = compare_count("count of a piece", &CallFields::count);
      status != SAR_OK) {
    return status;
  }
  if (const sar_status status =
          compare_field("schedule chosen by auto", &CallFields::chosen, schedule_name);
      status != SAR_OK) {
    return status;
  }
  return compare_field("epoch", &CallFields::epoch, nullptr);
}

// Peers could write anything into their call lines; an offset is used only if it stays inside.
sar_status Collective::check_offsets() {
  const auto inside = [&](uint64_t packed, uint64_t bytes) {
    const Location location = Location::unpack(packed);
    if (location.region >= kRegions) {
      return false;
    }
    const uint64_t region_bytes = comm_.region_bytes(location.region);
    return bytes <= region_bytes && location.offset <= region_bytes - bytes &&
           location.offset % element_bytes_ == 0;
  };
  const uint64_t bytes = call_.count * element_bytes_;
  const uint64_t input_bytes =
      call_.collective == SAR_COLLECTIVE_REDUCE_SCATTER ? bytes * ranks_ : bytes;
  const uint64_t output_bytes =
      call_.collective == SAR_COLLECTIVE_ALL_GATHER ? bytes * ranks_ : bytes;
  for (uint32_t rank = 0; rank < ranks_; rank++) {
    const CallFields &theirs = fields_[rank];
    const bool input_bad =
        (theirs.flags & kInputRegistered) != 0 && bytes != 0 && !inside(theirs.input, input_bytes);
    const bool output_bad = (theirs.flags & kOutputRegistered) != 0 && bytes != 0 &&
                            !inside(theirs.output, output_bytes);
    if (input_bad || output_bad) {
      Failure cause = comm_.failure(SAR_SYSTEM_ERROR);
      cause.facts.culprit_rank = static_cast<int32_t>(rank);
      cause.message.append(
          "rank %u announced an %s buffer that is not inside of its registered memory: its memory "
          "is damaged; "
          "nothing was written",
          rank, input_bad ? "input" : "output");
      return comm_.fail(cause);
    }
  }
  return SAR_OK;
}

Range Collective::first_chunk(uint64_t chunk) const {
  return Range{0, call_.count < chunk ? call_.count : chunk};
}

Range Collective::slice(const Range &range, uint32_t rank) const {
  const uint64_t line = kLineBytes / element_bytes_;
  const uint64_t lines = (range.length() + line - 1) / line;
  const uint64_t size = (lines + ranks_ - 1) / ranks_ * line;
  const auto bounded = [&](uint64_t offset) {
    return range.begin + (offset < range.length() ? offset : range.length());
  };
  return Range{bounded(rank * size), bounded((rank + 1) * size)};
}

bool Collective::is_small(uint64_t elements) const {
  return elements * element_bytes_ <= kSmallBytes;
}

bool Collective::all_say(uint32_t flags) const {
  for (uint32_t rank = 0; rank < ranks_; rank++) {
    if ((fields_[rank].flags & flags) != flags) {
      return false;
    }
  }
  return true;
}

const char *Collective::input_of(uint32_t rank, uint64_t element) const {
  const Location location = Location::unpack(fields_[rank].input);
  return rank == rank_ ? in(element)
                       : comm_.region_base(rank, location.region) + location.offset +
                             element * element_bytes_;
}

char *Collective::output_of(uint32_t rank, uint64_t element) const {
  const Location location = Location::unpack(fields_[rank].output);
  return rank == rank_ ? out(element)
                       : comm_.region_base(rank, location.region) + location.offset +
                             element * element_bytes_;
}

char *Collective::push_slot(uint32_t owner, uint32_t source) const {
  return comm_.segment(owner) + comm_.geometry().push_slot(comm_.push_round, source);
}

char *Collective::pull_half(uint32_t owner) const {
  return comm_.segment(owner) + comm_.geometry().pull_half(comm_.pull_round);
}

void Collective::copy(void *to, const void *from, uint64_t elements) const {
  if (to != from && elements != 0) {
    memcpy(to, from, elements * element_bytes_);
  }
}

uint64_t Collective::push_chunk() const {
  return smaller(comm_.geometry().slot_bytes(), kCachedBytes) / element_bytes_;
}

uint64_t Collective::pull_chunk() const {
  return smaller(comm_.geometry().part_bytes(), kCachedBytes) / element_bytes_;
}

ReduceJob Collective::new_job(uint64_t elements) const {
  ReduceJob job;
  job.input_count = ranks_;
  job.output_count = 0;
  job.elements = elements;
  job.type = call_.type;
  job.op = call_.op;
  return job;
}

}  // namespace sar
