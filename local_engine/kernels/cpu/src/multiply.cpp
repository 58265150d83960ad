#include "multiply.h"

#include <cstring>

namespace kernels {
namespace {

using simd::Bytes;
using simd::Floats;
using simd::Ints;

// How far ahead weights are asked for: they are read once, in order, from memory.
constexpr size_t kGroupsAhead = 12;
constexpr size_t kBytesAhead = 4096;

// How the eight sets of a group are read.
struct FourBitNumbers {
  static constexpr int kZero = 8;
  static void read(const uint8_t* at, Bytes* sets) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Bytes both = simd::load_bytes(at + 64 * i);
      sets[2 * i] = simd::low_nibbles(both);
      sets[2 * i + 1] = simd::high_nibbles(both);
    }
  }
  static Ints dot(Ints sums, const Bytes& set, const int8_t* x) { return simd::dot(sums, set, x); }
};

struct FourBitFloatNumbers {
  static constexpr int kZero = 16;
  static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read(at, sets);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) sets[i] = simd::look_up(kDoubledFloats, sets[i]);
  }
  static Ints dot(Ints sums, const Bytes& set, const int8_t* x) { return simd::dot(sums, set, x); }
};

struct FiveBitNumbers {
  static constexpr int kZero = 16;
  static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read(at, sets);
    const Bytes plane = simd::load_bytes(at + 256);
    sets[0] = simd::with_fifth_bit<0>(sets[0], plane);
    sets[1] = simd::with_fifth_bit<1>(sets[1], plane);
    sets[2] = simd::with_fifth_bit<2>(sets[2], plane);
    sets[3] = simd::with_fifth_bit<3>(sets[3], plane);
    sets[4] = simd::with_fifth_bit<4>(sets[4], plane);
    sets[5] = simd::with_fifth_bit<5>(sets[5], plane);
    sets[6] = simd::with_fifth_bit<6>(sets[6], plane);
    sets[7] = simd::with_fifth_bit<7>(sets[7], plane);
  }
  static Ints dot(Ints sums, const Bytes& set, const int8_t* x) { return simd::dot(sums, set, x); }
};

struct SixBitNumbers {
  static constexpr int kZero = 32;
  static void read(const uint8_t* at, Bytes* sets) {
    FourBitNumbers::read(at, sets);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      const Bytes plane = simd::load_bytes(at + 256 + 64 * half);
      Bytes* four = sets + 4 * half;
      four[0] = simd::with_sixth_bits<0>(four[0], plane);
      four[1] = simd::with_sixth_bits<1>(four[1], plane);
      four[2] = simd::with_sixth_bits<2>(four[2], plane);
      four[3] = simd::with_sixth_bits<3>(four[3], plane);
    }
  }
  static Ints dot(Ints sums, const Bytes& set, const int8_t* x) { return simd::dot(sums, set, x); }
};

struct EightBitNumbers {
  static constexpr int kZero = simd::kWideZero;
  static void read(const uint8_t* at, Bytes* sets) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) sets[i] = simd::load_bytes(at + 64 * i);
  }
  static Ints dot(Ints sums, const Bytes& set, const int8_t* x) { return simd::dot_wide(sums, set, x); }
};

// The scales, or offsets, of 16 rows.
template <int32_t kFormat>
Floats load_scales(const uint8_t* at) {
  if (kFormat == kFourBitFloats) return simd::load_powers(at);
  return simd::load_half(reinterpret_cast<const uint16_t*>(at));
}

// The n of 2^n.
constexpr int power_of(int x) { return x <= 1 ? 0 : 1 + power_of(x / 2); }

// Adds the products of four sets with sixteen bytes.
template <class Numbers>
Ints dot_half(Ints sums, const Bytes* sets, const int8_t* bytes) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sums = Numbers::dot(sums, sets[i], bytes + 4 * i);
  return sums;
}

// kRows rows of activations from `row` on.
template <class Numbers, int32_t kFormat, bool kFine, int kRows>
void quantised_rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
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
    Bytes sets[8];
    Numbers::read(tile, sets);
    const uint8_t* ahead = tile + kGroupsAhead * group_bytes(kFormat);
    for (size_t at = 0; at < group_bytes(kFormat); at += 64) simd::prefetch(ahead + at);
    const uint8_t* scale_at = tile + number_bytes(kFormat);
    Floats scale[kScales];
#pragma GCC unroll 2
    for (int i = 0; i < kScales; i++) scale[i] = load_scales<kFormat>(scale_at + i * kTile * 2);
    const Floats offset = has_offsets(kFormat) ? load_scales<kFormat>(scale_at + kTile * 2) : simd::zero();
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++) {
      const size_t first = static_cast<size_t>(m) * matrix.columns + group * kGroup;
      const size_t at = static_cast<size_t>(m) * groups + group;
      // Columns 0 to 15, and 16 to 31: groups of activations.
      Ints even = simd::splat_int(0);
      Ints odd = simd::splat_int(0);
      if (kFine) {
        even = simd::shift_left<7>(dot_half<Numbers>(even, sets, bytes + first));
        odd = simd::shift_left<7>(dot_half<Numbers>(odd, sets + 4, bytes + first + 16));
      }
      if (!has_offsets(kFormat) && Numbers::kZero != 0) {
        even = simd::add_ints(even, simd::shift_left<kZeroBits>(simd::splat_int(negated[2 * at])));
        odd = simd::add_ints(odd, simd::shift_left<kZeroBits>(simd::splat_int(negated[2 * at + 1])));
      }
      even = dot_half<Numbers>(even, sets, low_bytes + first);
      odd = dot_half<Numbers>(odd, sets + 4, low_bytes + first + 16);
      const Floats even_product = simd::mul(simd::to_floats(even), simd::splat(scales[2 * at]));
      if (kScales == 2) {
        total[m] = simd::fma(even_product, scale[0], total[m]);
        const Floats odd_product = simd::mul(simd::to_floats(odd), simd::splat(scales[2 * at + 1]));
        total[m] = simd::fma(odd_product, scale[kScales - 1], total[m]);
      } else {
        const Floats product = simd::fma(simd::to_floats(odd), simd::splat(scales[2 * at + 1]), even_product);
        total[m] = simd::fma(product, scale[0], total[m]);
      }
      if (has_offsets(kFormat)) total[m] = simd::fma(offset, simd::splat(sums[at]), total[m]);
    }
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

template <class Dense, int kRows>
void dense_rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
  const int columns = matrix.columns;
  const float* rows = x.row(row);
  Floats even[kRows];
  Floats odd[kRows];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; m++) {
    even[m] = start;
    odd[m] = simd::zero();
  }
  int column = 0;
  for (; column + 1 < columns; column += 2, tile += 2 * Dense::kBytes) {
    const Floats first = Dense::read(tile);
    const Floats second = Dense::read(tile + Dense::kBytes);
    simd::prefetch(tile + kBytesAhead);
    simd::prefetch(tile + kBytesAhead + Dense::kBytes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; m++) {
      const float* at = rows + static_cast<size_t>(m) * columns + column;
      even[m] = simd::fma(first, simd::splat(at[0]), even[m]);
      odd[m] = simd::fma(second, simd::splat(at[1]), odd[m]);
    }
  }
  if (column < columns) {
    const Floats last = Dense::read(tile);
    for (int m = 0; m < kRows; m++)
      even[m] = simd::fma(last, simd::splat(rows[static_cast<size_t>(m) * columns + column]), even[m]);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; m++) simd::store(out + m * kTile, simd::add(even[m], odd[m]));
}

template <class Numbers, int32_t kFormat, bool kFine>
struct Quantised {
  template <int kRows>
  static void rows(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, Floats start, float* out) {
    quantised_rows<Numbers, kFormat, kFine, kRows>(matrix, tile, x, row, start, out);
  }
};
template <class Storage>
struct Dense {
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
    if (count > 0) all_rows<Weights, kRows / 2>(matrix, tile, x, row, count, start, out);
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
  constexpr int kRows = simd::kTileRows;
  const auto run = [&](auto weights) {
    all_rows<decltype(weights), kRows>(matrix, data, x, first, count, start, out);
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
