// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What the host library says of itself.
#include "spark_allreduce.h"

#if defined(__clang__)
#define SAR_COMPILER "clang " __clang_version__
#else
#define SAR_COMPILER "gcc " __VERSION__
#endif

#if defined(__x86_64__)
#define SAR_ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define SAR_ARCHITECTURE "aarch64"
#else
#error "the layout and the wait have been thought through for x86-64 and aarch64 only"
#endif

const char *sar_build_info(void) {
  return "spark-allreduce " SAR_VERSION " host " SAR_COMPILER " " SAR_ARCHITECTURE;
}
