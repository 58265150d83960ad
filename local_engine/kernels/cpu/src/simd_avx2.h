// Sixteen lanes as two AVX2 registers. Dot products of bytes by VNNI where the compiler may use it, else by multiplying
// to 16 bits and adding pairs, which never overflows here: weights are below 128, or are made signed first.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace simd {

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};
struct Bytes {
  __m256i low, high;
};

constexpr int kTileRows = 8;
constexpr int kDenseRows = 6;
constexpr int kTwoChainRows = 3;
constexpr int kQueries = 5;
constexpr int kTwoChainQueries = 2;
constexpr int kValueQueries = 5;
constexpr int kValueVectors = 1;
constexpr int kStateVectors = 2;

inline Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats round_even(Floats x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}

inline __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Floats scale_by_power(Floats x, Floats n) {
  return {_mm256_mul_ps(x.low, power_of_two(n.low)), _mm256_mul_ps(x.high, power_of_two(n.high))};
}

inline Floats zero_below(Floats value, Floats x, Floats bound) {
  return {_mm256_and_ps(value.low, _mm256_cmp_ps(x.low, bound.low, _CMP_GE_OQ)),
          _mm256_and_ps(value.high, _mm256_cmp_ps(x.high, bound.high, _CMP_GE_OQ))};
}

inline __m256 keep_half(__m256 x, __m256i lane, int first, int last, __m256 other) {
  const __m256i inside =
      _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane), _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(inside));
}
inline Floats keep_lanes(Floats x, int first, int last, Floats other) {
  return {keep_half(x.low, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), first, last, other.low),
          keep_half(x.high, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), first, last, other.high)};
}

inline float sum(Floats x) {
  const __m256 a = _mm256_add_ps(x.low, x.high);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
inline float maximum(Floats x) {
  const __m256 a = _mm256_max_ps(x.low, x.high);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

inline float largest_magnitude(Floats x) {
  const __m256i sign = _mm256_set1_epi32(0x7fffffff);
  const __m256i most = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(x.low), sign),
                                        _mm256_and_si256(_mm256_castps_si256(x.high), sign));
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  const int bits = _mm_cvtsi128_si32(half);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// That of each of two.
inline void largest_magnitudes(Floats a, Floats b, float* most) {
  most[0] = largest_magnitude(a);
  most[1] = largest_magnitude(b);
}

inline Floats load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Floats load_bfloat(const uint16_t* p) {
  const auto widen = [](const uint16_t* at) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  };
  return {widen(p), widen(p + 8)};
}
inline Floats load_powers(const uint8_t* p) {
  const auto widen = [](const uint8_t* at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
  };
  return {widen(p), widen(p + 8)};
}

inline Floats load_first_bfloats(const uint16_t* p) {
  const auto read = [](const uint16_t* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), 16));
  };
  return {read(p), read(p + 16)};
}
inline Floats load_second_bfloats(const uint16_t* p) {
  const auto read = [](const uint16_t* at) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  };
  return {read(p), read(p + 16)};
}
inline __m256i bfloat_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 none = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(none)), 16);
}
inline void store_bfloats(uint16_t* p, Floats x) {
  const __m256i packed = _mm256_packus_epi32(bfloat_bits(x.low), bfloat_bits(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

inline Ints splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints add_ints(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
template <int bits>
inline Ints shift_left(Ints x) {
  return {_mm256_slli_epi32(x.low, bits), _mm256_slli_epi32(x.high, bits)};
}
inline Ints to_ints(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline int32_t sum_ints(Ints x) {
  const __m256i a = _mm256_add_epi32(x.low, x.high);
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
inline void store_bytes(int8_t* p, Ints x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// 32 numbers, and the sum of each sixteen.
inline void store_summed_bytes(int8_t* p, Ints a, Ints b, int32_t* sums) {
  store_bytes(p, a);
  store_bytes(p + 16, b);
  sums[0] = sum_ints(a);
  sums[1] = sum_ints(b);
}

inline Bytes load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Bytes low_nibbles(Bytes x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline Bytes high_nibbles(Bytes x) {
  return low_nibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}
inline Bytes look_up(const uint8_t* table, Bytes x) {
  const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(bytes, x.low), _mm256_shuffle_epi8(bytes, x.high)};
}

// (x << by) & mask, or (x >> -by) & mask, combined with `low`.
template <int by>
inline __m256i with_bits(__m256i low, __m256i x, __m256i mask) {
  const __m256i moved = by >= 0 ? _mm256_slli_epi16(x, by >= 0 ? by : 0) : _mm256_srli_epi16(x, by >= 0 ? 0 : -by);
  return _mm256_or_si256(low, _mm256_and_si256(moved, mask));
}
template <int bit>
inline Bytes with_fifth_bit(Bytes low, Bytes plane) {
  const __m256i mask = _mm256_set1_epi8(16);
  return {with_bits<4 - bit>(low.low, plane.low, mask), with_bits<4 - bit>(low.high, plane.high, mask)};
}
template <int pair>
inline Bytes with_sixth_bits(Bytes low, Bytes plane) {
  const __m256i mask = _mm256_set1_epi8(48);
  return {with_bits<4 - 2 * pair>(low.low, plane.low, mask), with_bits<4 - 2 * pair>(low.high, plane.high, mask)};
}

inline __m256i splat_four(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}
#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
constexpr int kWideZero = 128;
inline __m256i dot(__m256i sums, __m256i weights, __m256i x) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(sums, weights, x);
#else
  return _mm256_dpbusd_epi32(sums, weights, x);
#endif
}
template <int kLargest>
inline Ints dot_sets(Ints sums, const Bytes* sets, const int8_t* x) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m256i four = splat_four(x + 4 * i);
    sums = {dot(sums.low, sets[i].low, four), dot(sums.high, sets[i].high, four)};
  }
  return sums;
}
#else
constexpr int kWideZero = 0;  // the zero is taken off here
// Sums of two products each, in 16 bits.
template <int kLargest>
inline __m256i pair_products(__m256i weights, __m256i x) {
  if (kLargest < 128) return _mm256_maddubs_epi16(weights, x);
  const __m256i w = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
template <int kLargest>
inline Ints dot_sets(Ints sums, const Bytes* sets, const int8_t* x) {
  constexpr int kTogether = kLargest < 32 ? 4 : kLargest < 64 ? 2 : 1;  // sets whose sums 16 bits hold
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i += kTogether) {
    const __m256i first = splat_four(x + 4 * i);
    Ints pairs = {pair_products<kLargest>(sets[i].low, first), pair_products<kLargest>(sets[i].high, first)};
#pragma GCC unroll 4
    for (int j = i + 1; j < i + kTogether; j++) {
      const __m256i next = splat_four(x + 4 * j);
      pairs.low = _mm256_add_epi16(pairs.low, pair_products<kLargest>(sets[j].low, next));
      pairs.high = _mm256_add_epi16(pairs.high, pair_products<kLargest>(sets[j].high, next));
    }
    sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(pairs.low, ones));
    sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(pairs.high, ones));
  }
  return sums;
}
#endif

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace simd
