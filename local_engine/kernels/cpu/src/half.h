// 16-bit floats as bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace kernels {

inline float float_of(uint32_t bits) {
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
inline uint32_t bits_of(float x) {
  uint32_t result;
  std::memcpy(&result, &x, sizeof result);
  return result;
}

// To the nearest, ties to even; what is no number stays none.
inline uint16_t to_bfloat(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline float from_bfloat(uint16_t x) { return float_of(static_cast<uint32_t>(x) << 16); }

inline float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -small : small;
  }
  return float_of(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13);
}

// To the nearest, ties to even. Beyond half's range: infinity.
inline uint16_t to_half(float x) {
  const uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const uint32_t size = bits_of(x) & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (size < 0x38800000u) {  // subnormal: adding a half aligns the bits to 2^-24, and rounds
    return static_cast<uint16_t>(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
  }
  return static_cast<uint16_t>(sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
}

}  // namespace kernels
