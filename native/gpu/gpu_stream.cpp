// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The stream that work goes to, and copies that travel on it.
#include "gpu_communicator.hpp"

namespace sar::gpu {

sar_status GpuCommunicator::use_stream(void *stream) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_NONE, "a change of streams");
      status != SAR_OK) {
    return status;
  }
  void *next = stream == nullptr ? own_stream_ : stream;
  if (next == stream_) return SAR_OK;
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  const int state = driver_.stream_query(next);
  if ((state != 0 && state != kNotReady) || driver_.is_elsewhere(next, device_, context_)) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "rank %u: %p is no stream of device %s, on which the rank runs (in the primary "
                  "context, that of the runtime API)",
                  geometry_.rank, stream, device_of(geometry_.rank));
  }
  // The ranks' kernels are ordered by the stream: what follows must not overtake what is there.
  int error = driver_.event_record(switching_, stream_);
  if (error == 0) error = driver_.stream_wait_event(next, switching_, 0);
  if (error != 0) return fail_call(error, "change to another stream");
  stream_ = next;
  return SAR_OK;
}

sar_status GpuCommunicator::pinned(uint32_t buffer, void **base, uint64_t *bytes) const {
  if (buffer >= kPinnedBuffers) {
    return refuse(SAR_INVALID_ARGUMENT, "there is no pinned buffer %u", buffer);
  }
  *base = pinned_[buffer];
  *bytes = pinned_bytes_;
  return SAR_OK;
}

sar_status GpuCommunicator::copy_pinned(uint32_t buffer, uint64_t bytes, const char *what,
                                        bool to_device, uint64_t device) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_NONE, what); status != SAR_OK) {
    return status;
  }
  if (buffer >= kPinnedBuffers || bytes > pinned_bytes_) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %llu bytes do not fit pinned buffer %u", what,
                  static_cast<unsigned long long>(bytes), buffer);
  }
  int error = use_device();
  if (error == 0 && bytes != 0) {
    error = to_device ? driver_.copy_to_device_async(device, pinned_[buffer], bytes, stream_)
                      : driver_.copy_to_host_async(pinned_[buffer], device, bytes, stream_);
  }
  if (error == 0) error = driver_.event_record(copied_[buffer], stream_);
  return error == 0 ? SAR_OK : fail_call(error, what);
}

sar_status GpuCommunicator::pinned_to_device(uint32_t buffer, uint64_t device, uint64_t bytes) {
  return copy_pinned(buffer, bytes, "copy to the device", true, device);
}

sar_status GpuCommunicator::device_to_pinned(uint32_t buffer, uint64_t device, uint64_t bytes) {
  return copy_pinned(buffer, bytes, "copy from the device", false, device);
}

sar_status GpuCommunicator::pinned_wait(uint32_t buffer, int64_t timeout_ns) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_NONE, "a wait"); status != SAR_OK) {
    return status;
  }
  if (buffer >= kPinnedBuffers) {
    return refuse(SAR_INVALID_ARGUMENT, "there is no pinned buffer %u", buffer);
  }
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  control_.begin(SAR_COLLECTIVE_NONE, timeout_ns);
  return finish(static_cast<uint64_t>(timeout_ns), copied_[buffer]);
}

}  // namespace sar::gpu
