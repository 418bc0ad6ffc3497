// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "failure.hpp"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace sar {

namespace {

thread_local sar_failure thread_facts{SAR_OK, SAR_COLLECTIVE_NONE, 0, -1, -1, 0, 0, 0, 0, 0};
thread_local char thread_message[SAR_MESSAGE_BYTES];

template <size_t size>
const char *name_of(const char *const (&names)[size], uint32_t value) {
  return value < size ? names[value] : "unknown";
}

}  // namespace

Message &Message::append(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
  va_end(arguments);
  if (written > 0) {
    const size_t left = sizeof text_ - 1 - length_;
    length_ += static_cast<size_t>(written) < left ? static_cast<size_t>(written) : left;
  }
  return *this;
}

Message &Message::append_ranks(uint32_t ranks) {
  append(__builtin_popcount(ranks) == 1 ? "rank" : "ranks");
  const char *separator = " ";
  for (uint32_t rank = 0; rank < SAR_MAX_RANKS; rank++) {
    if ((ranks >> rank & 1u) != 0) {
      append("%s%u", separator, rank);
      separator = ", ";
    }
  }
  return *this;
}

sar_status remember(const Failure &failure) {
  thread_facts = failure.facts;
  memcpy(thread_message, failure.message.text(), sizeof thread_message);
  return failure.status();
}

sar_status refuse(sar_status status, const char *format, ...) {
  char text[SAR_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Failure failure(status);
  failure.message.append("%s", text);
  return remember(failure);
}

const char *last_message() { return thread_message; }

const sar_failure &last_facts() { return thread_facts; }

const char *status_name(uint32_t status) {
  static constexpr const char *names[] = {
      "ok",        "invalid argument", "mismatch",     "time-out",   "aborted",
      "peer lost", "out of memory",    "system error", "unsupported"};
  return name_of(names, status);
}

const char *type_name(uint32_t type) {
  static constexpr const char *names[] = {"float64",  "float32", "float16",
                                          "bfloat16", "int32",   "int64"};
  return name_of(names, type);
}

const char *op_name(uint32_t op) {
  static constexpr const char *names[] = {"sum", "product", "min", "max", "average"};
  return name_of(names, op);
}

const char *schedule_name(uint32_t schedule) {
  static constexpr const char *names[] = {"auto",         "one-shot",     "two-shot read",
                                          "staged write", "direct write", "load-reduce/store",
                                          "low latency"};
  return name_of(names, schedule);
}

const char *collective_name(uint32_t collective) {
  static constexpr const char *names[] = {"none",       "connect",        "barrier",
                                          "all-reduce", "reduce-scatter", "all-gather",
                                          "broadcast",  "register",       "deregister"};
  return name_of(names, collective);
}

}  // namespace sar
