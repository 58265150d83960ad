// The rows that a matrix is applied to: floats, and the same as signed bytes in groups of 16 with a scale each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

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

  // float_rows: of how many the floats are here as well.
  void reserve(int rows, int max_columns, int float_rows) {
    const size_t items = static_cast<size_t>(rows) * max_columns;
    floats.reserve(static_cast<size_t>(float_rows) * max_columns);
    bytes.reserve(items);
    if (fine) low_bytes.reserve(items);
    scales.reserve(items / kActivationGroup);
    negated_sums.reserve(items / kActivationGroup);
    scaled_sums.reserve(items / kGroup);
  }

  float* row(int index) { return floats.data() + static_cast<size_t>(index) * columns; }
  const float* row(int index) const { return floats.data() + static_cast<size_t>(index) * columns; }

  // Makes a row what another one is.
  void move(int from, int to) {
    const auto copy = [&](auto& buffer, int items) {
      std::copy_n(buffer.data() + static_cast<size_t>(from) * items, items, buffer.data() + static_cast<size_t>(to) * items);
    };
    copy(floats, columns);
    copy(bytes, columns);
    copy(scales, columns / kActivationGroup);
    copy(negated_sums, columns / kActivationGroup);
    copy(scaled_sums, columns / kGroup);
  }

  // Quantises columns first to last - 1 of a row, multiples of 32. A group with what is no number gets such a scale.
  void quantise(int index, int first, int last) { quantise(row(index) + first, index, first, last); }

  // The same from floats that lie elsewhere.
  void quantise(const float* x, int index, int first, int last) {
    const size_t at = static_cast<size_t>(index) * columns + first;
    quantise_pairs(x, kGroup, at, kGroup, (last - first) / kGroup);
  }

  // 32 columns of `count` rows from `index` on. x: of the first row, those of the others at a stride.
  void quantise_rows(const float* x, int stride, int index, int count, int column) {
    quantise_pairs(x, stride, static_cast<size_t>(index) * columns + column, columns, count);
  }

  // Row `to` becomes what row `from` of another is, neither fine. with_floats: both have them.
  void copy_row(const Activations& other, int from, int to, bool with_floats) {
    const auto copy = [&](auto& target, const auto& source, size_t count) {
      std::memcpy(target.data() + to * count, source.data() + from * count, count * sizeof(*target.data()));
    };
    copy(bytes, other.bytes, columns);
    copy(scales, other.scales, columns / kActivationGroup);
    copy(negated_sums, other.negated_sums, columns / kActivationGroup);
    copy(scaled_sums, other.scaled_sums, columns / kGroup);
    if (with_floats) copy(floats, other.floats, columns);
  }

 private:
  // Pairs of groups that are quantised together: what takes long, one waits for beside the others.
  static constexpr int kPairs = 32;
  // The largest |x| is taken for at least this, so that its inverse is a number.
  static constexpr float kLeast = 1e-34f;

  // `count` pairs of groups, whose floats and whose places in the buffers are strides apart.
  void quantise_pairs(const float* x, size_t stride, size_t at, size_t step, int count) {
    for (; count > 0; count -= kPairs, x += kPairs * stride, at += kPairs * step) {
      const int now = count < kPairs ? count : kPairs;
      fine ? quantise_some<true>(x, stride, at, step, now) : quantise_some<false>(x, stride, at, step, now);
    }
  }

  template <bool kFine>
  void quantise_some(const float* x, size_t stride, size_t at, size_t step, int count) {
    const simd::Floats levels = simd::splat(kFine ? kFineLevels : kCoarseLevels);
    float most[2 * kPairs] = {};
    float scale[2 * kPairs];
    float inverse[2 * kPairs];
    int32_t sums[2 * kPairs];
    for (int i = 0; i < count; i++)
      simd::largest_magnitudes(simd::load(x + i * stride), simd::load(x + i * stride + kActivationGroup), most + 2 * i);
    for (int i = 0; i < 2 * count; i += 16) {
      const simd::Floats largest = simd::load(most + i);
      simd::store(scale + i, simd::div(largest, levels));
      simd::store(inverse + i, simd::div(levels, simd::max(simd::splat(kLeast), largest)));
    }
    for (int i = 0; i < count; i++) {
      const float* from = x + i * stride;
      const simd::Floats q[2] = {simd::mul(simd::load(from), simd::splat(inverse[2 * i])),
                                 simd::mul(simd::load(from + kActivationGroup), simd::splat(inverse[2 * i + 1]))};
      store_numbers<kFine>(q, at + i * step, sums + 2 * i);
    }
    for (int i = 0; i < count; i++) {
      const size_t group = (at + i * step) / kActivationGroup;
      for (int half = 0; half < 2; half++) {
        scales.data()[group + half] = scale[2 * i + half];
        negated_sums.data()[group + half] = -sums[2 * i + half];
      }
      scaled_sums.data()[group / 2] = scale[2 * i] * static_cast<float>(sums[2 * i]) +
                                      scale[2 * i + 1] * static_cast<float>(sums[2 * i + 1]);
    }
  }

  // Rounds two groups to whole numbers, and gives the sum of each.
  template <bool kFine>
  void store_numbers(const simd::Floats* q, size_t at, int32_t* sums) {
    if (!kFine) {
      simd::store_summed_bytes(bytes.data() + at, simd::to_ints(q[0]), simd::to_ints(q[1]), sums);
      return;
    }
    for (int i = 0; i < 2; i++) {
      const simd::Floats whole = simd::round_even(q[i]);
      const simd::Floats high = simd::round_even(simd::mul(whole, simd::splat(1.0f / 128.0f)));
      simd::store_bytes(bytes.data() + at + i * kActivationGroup, simd::to_ints(high));
      simd::store_bytes(low_bytes.data() + at + i * kActivationGroup,
                        simd::to_ints(simd::fma(high, simd::splat(-128.0f), whole)));
      sums[i] = simd::sum_ints(simd::to_ints(whole));
    }
  }
};

}  // namespace kernels
