// The rows that a matrix is applied to: floats, and the same as signed bytes in groups of 32 with a scale each.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "format.h"
#include "simd.h"

namespace kernels {

// Rows of `columns` floats. Quantised, x is scale * q, q the whole number nearest to x * (kLevels / largest |x| of the
// group). Coarse, q is a byte. Fine, for the last matrix, where rounding moves logits directly: q is 128 * byte + low.
struct Activations {
  static constexpr float kCoarseLevels = 127.0f;
  static constexpr float kFineLevels = 127.0f * 128.0f;

  int columns = 0;
  bool fine = false;
  Buffer<float> floats;
  Buffer<int8_t> bytes;
  Buffer<int8_t> low_bytes;      // -64 to 63
  Buffer<float> scales;          // one a group
  Buffer<float> scaled_sums;     // scale * sum of q
  Buffer<int32_t> negated_sums;  // minus the sum of 16 q, two a group

  // Room for rows of up to max_columns, a multiple of 32.
  void reserve(int rows, int max_columns) {
    const size_t items = static_cast<size_t>(rows) * max_columns;
    floats.reserve(items);
    bytes.reserve(items);
    if (fine) low_bytes.reserve(items);
    scales.reserve(items / kGroup);
    scaled_sums.reserve(items / kGroup);
    negated_sums.reserve(items / (kGroup / 2));
  }

  float* row(int index) { return floats.data() + static_cast<size_t>(index) * columns; }
  const float* row(int index) const { return floats.data() + static_cast<size_t>(index) * columns; }

  // Quantises columns first to last - 1 of a row, multiples of 32. A group with what is no number gets such a scale.
  void quantise(int index, int first, int last) {
    const float levels = fine ? kFineLevels : kCoarseLevels;
    for (int column = first; column < last; column += kGroup) {
      const size_t at = static_cast<size_t>(index) * columns + column;
      const simd::Floats halves[] = {simd::load(floats.data() + at), simd::load(floats.data() + at + 16)};
      const float most = simd::largest_magnitude(halves[0], halves[1]);
      const simd::Floats steps = simd::splat(most != 0.0f ? levels / most : 0.0f);
      int32_t sums[2];
      for (int half = 0; half < 2; half++) {
        const simd::Floats q = simd::round_even(simd::mul(halves[half], steps));
        sums[half] = store_numbers(q, at + 16 * half);
      }
      const float scale = most / levels;
      scales.data()[at / kGroup] = scale;
      scaled_sums.data()[at / kGroup] = scale * static_cast<float>(sums[0] + sums[1]);
      negated_sums.data()[at / 16] = -sums[0];
      negated_sums.data()[at / 16 + 1] = -sums[1];
    }
  }

 private:
  // Sixteen whole numbers; returns their sum.
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
