// Sixteen lanes of one instruction set, chosen by the compiler's flags. Everything else is written over this layer.
//
// All operations are exact IEEE ones (multiply-add rounds once) and sums go over lanes in one stated order, so every
// instruction set computes the same bits; but the smallest bfloats, below 2^-126, may count as 0.
//
// Pairs are two bfloats a lane. dot_pairs adds their products with two bfloats at b, kept as Factors: of the second ones,
// then of the first ones, each rounded once: what the bfloat instructions of x86 do (Intel's reference of VDPBF16PS; AMD
// Zen 4 the same, 2026-11).
//
// Each says how much its registers hold, as measured: kTileRows rows of activations beside quantised weights, kDenseRows
// beside others, kQueries beside keys, kValueQueries beside kValueVectors vectors of values, kStateVectors of a recurrent
// state. Up to kTwoChainRows and kTwoChainQueries the sums of even and of odd columns are there at once.
#pragma once

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "simd_avx2.h"
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_DOTPROD)
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif

// Where no instruction takes bfloats.
#if !defined(__AVX512BF16__)
namespace simd {

struct Pairs {
  Floats first, second;
};
using Factor = float;

inline Pairs load_pairs(const uint16_t* p) { return {load_first_bfloats(p), load_second_bfloats(p)}; }
inline Pairs first_of_pairs(const Pairs& x) { return {x.first, zero()}; }
inline Floats dot_pairs(const Floats& sums, const Pairs& a, const Factor* b) {
  return fma(a.first, splat(b[0]), fma(a.second, splat(b[1]), sums));
}

}  // namespace simd
#endif
