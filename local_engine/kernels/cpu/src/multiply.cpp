#include "multiply.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace kernels {
namespace {

using simd::Bytes;
using simd::Floats;
using simd::Ints;

// How far ahead weights are asked for: they are read once, in order, from memory.
constexpr size_t kGroupsAhead = 12;
constexpr size_t kBytesAhead = 4096;
// Columns of a dense tile that stay in the first cache while they are read twice.
constexpr int kColumns = 256;

// How the sets of a group are read: four of columns 0 to 15, or of columns 16 to 31. Always inlined: GCC 12 calls it in a
// few loops, and the sets go through memory.
struct FourBitNumbers {
  static constexpr int kZero = 8;
  static constexpr int kLargest = 15;
  template <int kHalf>
  [[gnu::always_inline]] static void read(const uint8_t* at, Bytes* sets) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const Bytes both = simd::load_bytes(at + 128 * kHalf + 64 * i);
      sets[2 * i] = simd::low_nibbles(both);
      sets[2 * i + 1] = simd::high_nibbles(both);
    }
  }
};

struct FourBitFloatNumbers {
  static constexpr int kZero = 16;
  static constexpr int kLargest = 28;
  template <int kHalf>
  [[gnu::always_inline]] static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read<kHalf>(at, sets);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sets[i] = simd::look_up(kDoubledFloats, sets[i]);
  }
};

struct FiveBitNumbers {
  static constexpr int kZero = 16;
  static constexpr int kLargest = 31;
  template <int kHalf>
  [[gnu::always_inline]] static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read<kHalf>(at, sets);
    const Bytes plane = simd::load_bytes(at + 256);
    sets[0] = simd::with_fifth_bit<4 * kHalf>(sets[0], plane);
    sets[1] = simd::with_fifth_bit<4 * kHalf + 1>(sets[1], plane);
    sets[2] = simd::with_fifth_bit<4 * kHalf + 2>(sets[2], plane);
    sets[3] = simd::with_fifth_bit<4 * kHalf + 3>(sets[3], plane);
  }
};

struct SixBitNumbers {
  static constexpr int kZero = 32;
  static constexpr int kLargest = 63;
  template <int kHalf>
  [[gnu::always_inline]] static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read<kHalf>(at, sets);
    const Bytes plane = simd::load_bytes(at + 256 + 64 * kHalf);
    sets[0] = simd::with_sixth_bits<0>(sets[0], plane);
    sets[1] = simd::with_sixth_bits<1>(sets[1], plane);
    sets[2] = simd::with_sixth_bits<2>(sets[2], plane);
    sets[3] = simd::with_sixth_bits<3>(sets[3], plane);
  }
};

struct EightBitNumbers {
  static constexpr int kZero = simd::kWideZero;
  static constexpr int kLargest = 255;
  template <int kHalf>
  [[gnu::always_inline]] static void read(const uint8_t* at, Bytes* sets) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sets[i] = simd::load_bytes(at + 256 * kHalf + 64 * i);
  }
};

// The scales, or offsets, of 16 rows.
template <int32_t kFormat>
Floats load_scales(const uint8_t* at) {
  if (kFormat == kFourBitFloats) return simd::load_powers(at);
  return simd::load_half(reinterpret_cast<const uint16_t*>(at));
}

// The n of 2^n.
constexpr int power_of(int x) { return x <= 1 ? 0 : 1 + power_of(x / 2); }

// kRows rows of activations from `row` on. Never inlined, so that GCC 12 shares out the registers for this loop alone:
// among others it keeps sums in memory.
template <class Numbers, int32_t kFormat, bool kFine, int kRows>
[[gnu::noinline]] void quantised_rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row,
                                      Floats start, float* out) {
  constexpr int kScales = scales_per_group(kFormat);
  constexpr int kZeroBits = power_of(Numbers::kZero);
  const int groups = matrix.columns / kGroup;
  const int8_t* bytes = x.bytes.data() + static_cast<size_t>(row) * matrix.columns;
  const int8_t* low_bytes = kFine ? x.low_bytes.data() + static_cast<size_t>(row) * matrix.columns : bytes;
  const float* scales = x.scales.data() + static_cast<size_t>(row) * groups * 2;
  const float* sums = x.scaled_sums.data() + static_cast<size_t>(row) * groups;
  const int32_t* negated = x.negated_sums.data() + static_cast<size_t>(row) * groups * 2;
  Floats total[kRows];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; m++) total[m] = start;
  for (int group = 0; group < groups; group++, tile += group_bytes(kFormat)) {
    const uint8_t* ahead = tile + kGroupsAhead * group_bytes(kFormat);
    for (size_t at = 0; at < group_bytes(kFormat); at += 64) simd::prefetch(ahead + at);
    const uint8_t* scale_at = tile + number_bytes(kFormat);
    Floats scale[kScales];
#pragma GCC unroll 2
    for (int i = 0; i < kScales; i++) scale[i] = load_scales<kFormat>(scale_at + i * kTile * 2);
    const Floats offset = has_offsets(kFormat) ? load_scales<kFormat>(scale_at + kTile * 2) : simd::zero();
    Floats products[kRows];
    // Columns 0 to 15, and 16 to 31: groups of activations.
    const auto half = [&](auto which) {
      constexpr int kHalf = which();
      Bytes sets[4];
      Numbers::template read<kHalf>(tile, sets);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; m++) {
        const size_t first = static_cast<size_t>(m) * matrix.columns + group * kGroup + 16 * kHalf;
        const size_t at = (static_cast<size_t>(m) * groups + group) * 2 + kHalf;
        Ints sum = simd::splat_int(0);
        if (kFine) sum = simd::shift_left<7>(simd::dot_sets<Numbers::kLargest>(sum, sets, bytes + first));
        if (!has_offsets(kFormat) && Numbers::kZero != 0)
          sum = simd::add_ints(sum, simd::shift_left<kZeroBits>(simd::splat_int(negated[at])));
        const Floats exact = simd::to_floats(simd::dot_sets<Numbers::kLargest>(sum, sets, low_bytes + first));
        const Floats by = simd::splat(scales[at]);
        if (kScales == 1 && kHalf == 1) {
          products[m] = simd::fma(exact, by, products[m]);
        } else {
          products[m] = simd::mul(exact, by);
        }
        if (kScales == 1 && kHalf == 0) continue;
        total[m] = simd::fma(products[m], scale[kScales == 1 ? 0 : kHalf], total[m]);
        if (has_offsets(kFormat)) total[m] = simd::fma(offset, simd::splat(sums[at / 2]), total[m]);
      }
    };
    half(std::integral_constant<int, 0>());
    half(std::integral_constant<int, 1>());
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; m++) simd::store(out + m * kTile, total[m]);
}

struct Bfloats {
  static Floats read(const uint8_t* at) { return simd::load_bfloat(reinterpret_cast<const uint16_t*>(at)); }
  static constexpr int kBytes = 32;
};
struct Halves {
  static Floats read(const uint8_t* at) { return simd::load_half(reinterpret_cast<const uint16_t*>(at)); }
  static constexpr int kBytes = 32;
};
struct Singles {
  static Floats read(const uint8_t* at) { return simd::load(reinterpret_cast<const float*>(at)); }
  static constexpr int kBytes = 64;
};

// Adds the products of every second column from `column` on, or with two chains of all, to sums[kChains][kRows].
template <class Dense, int kRows, int kChains>
[[gnu::noinline]] void dense_columns(const uint8_t* tile, const float* rows, int stride, int column, int last,
                                     Floats* sums) {
  Floats sum[kChains * kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kChains * kRows; i++) sum[i] = sums[i];
  const auto add = [&](int chain, int at) {
    const Floats weights = Dense::read(tile + static_cast<size_t>(at) * Dense::kBytes);
    simd::prefetch(tile + static_cast<size_t>(at) * Dense::kBytes + kBytesAhead);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++) {
      Floats& total = sum[chain * kRows + m];
      total = simd::fma(weights, simd::splat(rows[static_cast<size_t>(m) * stride + at]), total);
    }
  };
  for (; column + kChains <= last; column += 2) {
    add(0, column);
    if (kChains == 2) add(1, column + 1);
  }
  if (kChains == 2 && column < last) add(0, column);
#pragma GCC unroll 16
  for (int i = 0; i < kChains * kRows; i++) sums[i] = sum[i];
}

// The sums of even and of odd columns at once, or one after the other where registers do not hold both.
template <class Dense, int kRows>
void dense_rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
  constexpr int kChains = kRows <= simd::kTwoChainRows ? 2 : 1;
  const int columns = matrix.columns;
  Floats sums[2 * kRows];
  for (int m = 0; m < kRows; m++) {
    sums[m] = start;
    sums[kRows + m] = simd::zero();
  }
  for (int first = 0; first < columns; first += kColumns)
    for (int chain = 0; chain < 2; chain += kChains)
      dense_columns<Dense, kRows, kChains>(tile, x.row(row), columns, first + chain, std::min(first + kColumns, columns),
                                           sums + chain * kRows);
  for (int m = 0; m < kRows; m++) simd::store(out + m * kTile, simd::add(sums[m], sums[kRows + m]));
}

template <class Numbers, int32_t kFormat, bool kFine>
struct Quantised {
  static constexpr int kMostRows = simd::kTileRows;
  template <int kRows>
  static void rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
    quantised_rows<Numbers, kFormat, kFine, kRows>(matrix, tile, x, row, start, out);
  }
};
template <class Storage>
struct Dense {
  static constexpr int kMostRows = simd::kDenseRows;
  template <int kRows>
  static void rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
    dense_rows<Storage, kRows>(matrix, tile, x, row, start, out);
  }
};

// As many rows at once as registers hold, then half as many, down to one.
template <class Weights, int kRows>
void all_rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, int count, Floats start,
              float* out) {
  while (count >= kRows) {
    Weights::template rows<kRows>(matrix, tile, x, row, start, out);
    row += kRows;
    count -= kRows;
    out += kRows * kTile;
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 3 ? kRows / 2 : kRows - 1;
    if (count > 0) all_rows<Weights, kFewer>(matrix, tile, x, row, count, start, out);
  }
}

template <class Numbers, int32_t kFormat, class Run>
void run_quantised(bool fine, const Run& run) {
  fine ? run(Quantised<Numbers, kFormat, true>()) : run(Quantised<Numbers, kFormat, false>());
}

}  // namespace

void multiply(const Matrix& matrix, int tile, const Activations& x, int first, int count, float* out) {
  const uint8_t* data = matrix.tile(tile);
  Floats start = simd::zero();
  if (matrix.bias != nullptr) {
    float bias[kTile] = {};
    const int rows = matrix.rows - tile * kTile;
    std::memcpy(bias, matrix.bias + tile * kTile, sizeof(float) * (rows < kTile ? rows : kTile));
    start = simd::load(bias);
  }
  const auto run = [&](auto weights) {
    using Weights = decltype(weights);
    all_rows<Weights, Weights::kMostRows>(matrix, data, x, first, count, start, out);
  };
  switch (matrix.format) {
    case kFourBits: return run_quantised<FourBitNumbers, kFourBits>(x.fine, run);
    case kFourBitsOffset: return run_quantised<FourBitNumbers, kFourBitsOffset>(x.fine, run);
    case kFourBitFloats: return run_quantised<FourBitFloatNumbers, kFourBitFloats>(x.fine, run);
    case kFiveBits: return run_quantised<FiveBitNumbers, kFiveBits>(x.fine, run);
    case kFiveBitsOffset: return run_quantised<FiveBitNumbers, kFiveBitsOffset>(x.fine, run);
    case kSixBits16: return run_quantised<SixBitNumbers, kSixBits16>(x.fine, run);
    case kEightBits: return run_quantised<EightBitNumbers, kEightBits>(x.fine, run);
    case kBfloat16: return run(Dense<Bfloats>());
    case kFloat16: return run(Dense<Halves>());
    default: return run(Dense<Singles>());
  }
}

}  // namespace kernels
