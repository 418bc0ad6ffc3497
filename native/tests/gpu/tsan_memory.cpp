// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// tsan_memory.cpp: three functions that clang's ThreadSanitizer instrumentation calls and GCC's
// runtime does not have by these names. The runtime intercepts the plain ones. Weak: a build that
// links clang's runtime has its own.
#include <cstring>

extern "C" {
__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  return std::memcpy(to, from, bytes);
}
__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  return std::memmove(to, from, bytes);
}
__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t bytes) {
  return std::memset(to, value, bytes);
}
}
