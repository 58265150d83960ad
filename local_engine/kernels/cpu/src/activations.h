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
      fine ? quantise_pair<true>(at) : quantise_pair<false>(at);
    }
  }

 private:
  // Two groups at once, which share what is done across lanes and the divisions.
  template <bool kFine>
  void quantise_pair(size_t at) {
    constexpr float kLevels = kFine ? kFineLevels : kCoarseLevels;
    const simd::Floats x[2] = {simd::load(floats.data() + at), simd::load(floats.data() + at + kActivationGroup)};
    float most[2];
    simd::largest_magnitudes(x[0], x[1], most);
    float* scale = scales.data() + at / kActivationGroup;
    float inverse[2];
    for (int i = 0; i < 2; i++) {
      scale[i] = most[i] / kLevels;
      inverse[i] = kLevels / (most[i] != 0.0f ? most[i] : 1.0f);
    }
    const simd::Floats q[2] = {simd::round_even(simd::mul(x[0], simd::splat(inverse[0]))),
                               simd::round_even(simd::mul(x[1], simd::splat(inverse[1])))};
    const simd::Ints whole[2] = {simd::to_ints(q[0]), simd::to_ints(q[1])};
    int32_t sums[2];
    if (kFine) {
      for (int i = 0; i < 2; i++) {
        const simd::Floats high = simd::round_even(simd::mul(q[i], simd::splat(1.0f / 128.0f)));
        simd::store_bytes(bytes.data() + at + i * kActivationGroup, simd::to_ints(high));
        simd::store_bytes(low_bytes.data() + at + i * kActivationGroup,
                          simd::to_ints(simd::fma(high, simd::splat(-128.0f), q[i])));
        sums[i] = simd::sum_ints(whole[i]);
      }
    } else {
      simd::store_summed_bytes(bytes.data() + at, whole[0], whole[1], sums);
    }
    for (int i = 0; i < 2; i++) negated_sums.data()[at / kActivationGroup + i] = -sums[i];
    scaled_sums.data()[at / kGroup] = scale[0] * static_cast<float>(sums[0]) + scale[1] * static_cast<float>(sums[1]);
  }
};

}  // namespace kernels
