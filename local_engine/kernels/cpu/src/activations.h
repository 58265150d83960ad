// The rows that a matrix is applied to: floats, and the same as signed bytes in groups of 16 with a scale each.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "format.h"
#include "simd.h"

namespace kernels {

constexpr int kActivationGroup = 16;

// Rows of `columns` floats, a multiple of 32 where they are quantised. Then x is scale * q, q the whole number nearest to
// x * (levels / largest |x| of the group). Coarse, q is a byte. Fine, for the likeliest logits, which
// rounding moves directly: q is 128 * byte + low.
struct Activations {
  static constexpr float kCoarseLevels = 127.0f;
  static constexpr float kFineLevels = 127.0f * 128.0f;

  int columns = 0;
  bool fine = false;
  Buffer<float> floats;
  Buffer<int8_t> bytes;
  Buffer<int8_t> low_bytes;      // -64 to 63
  Buffer<float> scales;          // one a group
  Buffer<int32_t> negated_sums;  // minus the sum of a group's q
  Buffer<float> scaled_sums;     // of two groups, as the offsets of weights need them

  void reserve(int rows, int max_columns) {
    const size_t items = static_cast<size_t>(rows) * max_columns;
    floats.reserve(items);
    bytes.reserve(items);
    if (fine) low_bytes.reserve(items);
    scales.reserve(items / kActivationGroup);
    negated_sums.reserve(items / kActivationGroup);
    scaled_sums.reserve(items / kGroup);
  }

  float* row(int index) { return floats.data() + static_cast<size_t>(index) * columns; }
  const float* row(int index) const { return floats.data() + static_cast<size_t>(index) * columns; }

  // Quantises columns first to last - 1 of a row, multiples of 32. A group with what is no number gets such a scale.
  void quantise(int index, int first, int last) {
    for (int column = first; column < last; column += kGroup) {
      const size_t at = static_cast<size_t>(index) * columns + column;
      float sum = quantise_group(at);
      sum += quantise_group(at + kActivationGroup);
      scaled_sums.data()[at / kGroup] = sum;
    }
  }

 private:
  // Returns the scaled sum.
  float quantise_group(size_t at) {
    const float levels = fine ? kFineLevels : kCoarseLevels;
    const simd::Floats x = simd::load(floats.data() + at);
    const float most = simd::largest_magnitude(x);
    const simd::Floats q = simd::round_even(simd::mul(x, simd::splat(most != 0.0f ? levels / most : 0.0f)));
    const int32_t sum = store_numbers(q, at);
    const float scale = most / levels;
    scales.data()[at / kActivationGroup] = scale;
    negated_sums.data()[at / kActivationGroup] = -sum;
    return scale * static_cast<float>(sum);
  }

  // Returns the sum of the sixteen numbers.
  int32_t store_numbers(simd::Floats q, size_t at) {
    const simd::Ints whole = simd::to_ints(q);
    if (!fine) {
      simd::store_bytes(bytes.data() + at, whole);
      return simd::sum_ints(whole);
    }
    const simd::Floats high = simd::round_even(simd::mul(q, simd::splat(1.0f / 128.0f)));
    simd::store_bytes(bytes.data() + at, simd::to_ints(high));
    simd::store_bytes(low_bytes.data() + at, simd::to_ints(simd::fma(high, simd::splat(-128.0f), q)));
    return simd::sum_ints(whole);
  }
};

}  // namespace kernels
