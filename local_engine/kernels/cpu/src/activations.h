// The rows that a matrix is applied to: floats, and the same as signed bytes in groups of 32 with a scale each.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "format.h"
#include "simd.h"

namespace kernels {

// Rows of `columns` floats. Quantised, x is scale * byte, the byte nearest to x * (127 / largest |x| of the group).
struct Activations {
  int columns = 0;
  Buffer<float> floats;
  Buffer<int8_t> bytes;
  Buffer<float> scales;        // one a group
  Buffer<float> scaled_sums;   // scale * sum of the bytes
  Buffer<int32_t> negated_sums;  // minus the sum of 16 bytes, two a group

  // Room for rows of up to max_columns, a multiple of 32.
  void reserve(int rows, int max_columns) {
    const size_t items = static_cast<size_t>(rows) * max_columns;
    floats.reserve(items);
    bytes.reserve(items);
    scales.reserve(items / kGroup);
    scaled_sums.reserve(items / kGroup);
    negated_sums.reserve(items / (kGroup / 2));
  }

  float* row(int index) { return floats.data() + static_cast<size_t>(index) * columns; }
  const float* row(int index) const { return floats.data() + static_cast<size_t>(index) * columns; }

  // Quantises columns first to last - 1 of a row, multiples of 32. A group with what is no number gets such a scale.
  void quantise(int index, int first, int last) {
    const float* x = row(index);
    const size_t groups = static_cast<size_t>(index) * (columns / kGroup);
    for (int column = first; column < last; column += kGroup) {
      const size_t group = groups + column / kGroup;
      const simd::Floats low = simd::load(x + column);
      const simd::Floats high = simd::load(x + column + 16);
      const float most = simd::largest_magnitude(low, high);
      const simd::Floats steps = simd::splat(most != 0.0f ? 127.0f / most : 0.0f);
      const simd::Ints low_bytes = simd::to_ints(simd::mul(low, steps));
      const simd::Ints high_bytes = simd::to_ints(simd::mul(high, steps));
      int8_t* out = bytes.data() + static_cast<size_t>(index) * columns + column;
      simd::store_bytes(out, low_bytes);
      simd::store_bytes(out + 16, high_bytes);
      const int32_t low_sum = simd::sum_ints(low_bytes);
      const int32_t high_sum = simd::sum_ints(high_bytes);
      const float scale = most / 127.0f;
      scales.data()[group] = scale;
      scaled_sums.data()[group] = scale * static_cast<float>(low_sum + high_sum);
      negated_sums.data()[2 * group] = -low_sum;
      negated_sums.data()[2 * group + 1] = -high_sum;
    }
  }
};

}  // namespace kernels
