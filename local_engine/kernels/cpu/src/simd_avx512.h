// Sixteen lanes as one AVX-512 register, with VNNI for dot products of bytes.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace simd {

using Floats = __m512;
using Ints = __m512i;
using Bytes = __m512i;

// Rows that a tile of numbers, or of floats, computes at once, and queries that attention does with keys, or with so many
// vectors of values: as many as registers hold.
constexpr int kTileRows = 8;
constexpr int kDenseRows = 8;
constexpr int kTwoChainRows = 8;
constexpr int kQueries = 8;
constexpr int kTwoChainQueries = 8;
constexpr int kValueQueries = 4;
constexpr int kValueVectors = 4;
constexpr int kStateVectors = 4;

inline Floats zero() { return _mm512_setzero_ps(); }
inline Floats splat(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats round_even(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// x * 2^n for whole n from -126 to 127.
inline Floats scale_by_power(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }

// value where x >= bound, else 0.
inline Floats zero_below(Floats value, Floats x, Floats bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), value);
}

// x in lanes first to last - 1, `other` in the rest.
inline Floats keep_lanes(Floats x, int first, int last, Floats other) {
  const uint32_t below_last = last >= 16 ? 0xffffu : (1u << last) - 1;
  const uint32_t below_first = first >= 16 ? 0xffffu : (1u << first) - 1;
  return _mm512_mask_mov_ps(other, static_cast<__mmask16>(below_last & ~below_first), x);
}

// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1.
inline float sum(Floats x) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
inline float maximum(Floats x) { return _mm512_reduce_max_ps(x); }

// The largest |x|; not a number if one of them is none.
inline float largest_magnitude(Floats x) {
  const int bits = _mm512_reduce_max_epi32(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// That of each of two.
inline void largest_magnitudes(Floats a, Floats b, float* most) {
  const __m512i sign = _mm512_set1_epi32(0x7fffffff);
  const __m512i x = _mm512_and_si512(_mm512_castps_si512(a), sign);
  const __m512i y = _mm512_and_si512(_mm512_castps_si512(b), sign);
  // Quarters 0 and 2 of each, and 1 and 3: then quarters 0 and 1 are of a, the others of b.
  __m512i both = _mm512_max_epi32(_mm512_shuffle_i64x2(x, y, 0x88), _mm512_shuffle_i64x2(x, y, 0xdd));
  both = _mm512_max_epi32(both, _mm512_shuffle_epi32(both, _MM_PERM_BADC));
  both = _mm512_max_epi32(both, _mm512_shuffle_epi32(both, _MM_PERM_CDAB));
  const __m512i other = _mm512_shuffle_i64x2(both, both, 0xb1);
  const __m512i all = _mm512_max_epi32(both, other);
  const __m128i pair = _mm_unpacklo_epi32(_mm512_castsi512_si128(all), _mm512_extracti32x4_epi32(all, 2));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(most), pair);
}

inline Floats load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_bfloat(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// 2^(b - 127) of each of 16 bytes b from 1 to 254; of 0, 0.
inline Floats load_powers(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23));
}

#if defined(__AVX512BF16__)
using Pairs = __m512i;
using Factor = uint16_t;
inline Pairs load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
inline Pairs first_of_pairs(Pairs x) { return _mm512_and_si512(x, _mm512_set1_epi32(0xffff)); }
inline Floats dot_pairs(Floats sums, Pairs a, const Factor* b) {
  int32_t two;
  std::memcpy(&two, b, sizeof two);
  const __m512i pair = _mm512_set1_epi32(two);
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(pair));
}
inline void store_bfloats(uint16_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
#else
inline Floats load_first_bfloats(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
inline Floats load_second_bfloats(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-65536)));
}
inline void store_bfloats(uint16_t* p, Floats x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i chosen = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16)));
}
#endif

inline Ints splat_int(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
template <int bits>
inline Ints shift_left(Ints x) {
  return _mm512_slli_epi32(x, bits);
}
inline Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }
inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline int32_t sum_ints(Ints x) { return _mm512_reduce_add_epi32(x); }
inline void store_bytes(int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
}

// 32 numbers, and the sum of each sixteen.
inline void store_summed_bytes(int8_t* p, Ints a, Ints b, int32_t* sums) {
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(b), _mm512_cvtepi32_epi8(a));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
  __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
  fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
  fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
  const __m128i pair = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(sums), pair);
}

inline Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes low_nibbles(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }

// The bytes of a table of 16 at places x, each below 16.
inline Bytes look_up(const uint8_t* table, Bytes x) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), x);
}

// Bit `bit` of each byte of plane becomes bit 4.
template <int bit>
inline Bytes with_fifth_bit(Bytes low, Bytes plane) {
  const __m512i moved = bit < 4 ? _mm512_slli_epi16(plane, bit < 4 ? 4 - bit : 0)
                                : _mm512_srli_epi16(plane, bit < 4 ? 0 : bit - 4);
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(16), 0xf8);  // low | (moved & 16)
}

// Bits 2 * pair and 2 * pair + 1 of each byte of plane become bits 4 and 5.
template <int pair>
inline Bytes with_sixth_bits(Bytes low, Bytes plane) {
  const __m512i moved = pair < 2 ? _mm512_slli_epi16(plane, pair < 2 ? 4 - 2 * pair : 0)
                                 : _mm512_srli_epi16(plane, pair < 2 ? 0 : 2 * pair - 4);
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(48), 0xf8);
}

// Adds to each lane the products of its four bytes with the four signed bytes at x. The instruction
// is named here, since GCC 12 needs a second one to read memory: 2% of a step (Zen 4, 2026-11).
inline Ints dot(Ints sums, Bytes weights, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
  return sums;
}
// The same with four sets of weights and sixteen bytes. kLargest: of the weights; those up to 255 stand for
// weight - kWideZero.
constexpr int kWideZero = 128;
template <int kLargest>
inline Ints dot_sets(Ints sums, const Bytes* sets, const int8_t* x) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sums = dot(sums, sets[i], x + 4 * i);
  return sums;
}

// Into the first cache, or the second.
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_later(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace simd
