// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What collectives must compute, written without the code under test: the next wider format does
// the arithmetic, and conversions go through ldexp and nearbyint. Knows nothing of a backend.
#ifndef SPARK_ALLREDUCE_TESTS_REFERENCE_HPP
#define SPARK_ALLREDUCE_TESTS_REFERENCE_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spark_allreduce.h"

namespace sar::testing {

using Bytes = std::vector<unsigned char>;

size_t size_of(sar_data_type type);

// A 16-bit float's value; exact.
double decode16(sar_data_type type, uint16_t bits);
// To nearest even; NaN becomes the canonical one.
uint16_t encode16(sar_data_type type, double value);

// Combines `elements` elements of all inputs in their order.
Bytes reference_reduce(sar_data_type type, sar_reduce_op op,
                       const std::vector<const void *> &inputs, size_t elements);

}  // namespace sar::testing

#endif  // SPARK_ALLREDUCE_TESTS_REFERENCE_HPP
