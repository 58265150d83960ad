// Sixteen lanes as arrays, for any machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace simd {

struct Floats {
  float lane[16];
};
struct Ints {
  int32_t lane[16];
};
struct Bytes {
  uint8_t lane[64];
};

constexpr int kTileRows = 2;
constexpr int kDenseRows = 2;
constexpr int kTwoChainRows = 2;
constexpr int kQueries = 2;
constexpr int kTwoChainQueries = 2;
constexpr int kValueQueries = 2;
constexpr int kValueVectors = 2;
constexpr int kStateVectors = 2;

template <class Lanes, class Function>
inline Lanes each(Function function) {
  Lanes result;
  for (int i = 0; i < 16; i++) result.lane[i] = function(i);
  return result;
}

inline Floats splat(float x) {
  return each<Floats>([=](int) { return x; });
}
inline Floats zero() { return splat(0.0f); }
inline Floats load(const float* p) {
  Floats result;
  std::memcpy(&result, p, sizeof result);
  return result;
}
inline void store(float* p, const Floats& x) { std::memcpy(p, &x, sizeof x); }
inline Floats add(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats sub(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats mul(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats div(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return each<Floats>([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Floats max(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats min(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}

// For |x| below 2^22: adding and taking off 1.5 * 2^23 leaves no bit behind the point.
inline float round_one(float x) {
  constexpr float kShift = 12582912.0f;
  const volatile float shifted = x + kShift;
  return shifted - kShift;
}
inline Floats round_even(const Floats& x) {
  return each<Floats>([&](int i) { return round_one(x.lane[i]); });
}
inline Floats scale_by_power(const Floats& x, const Floats& n) {
  return each<Floats>([&](int i) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x.lane[i] * power;
  });
}
inline Floats zero_below(const Floats& value, const Floats& x, const Floats& bound) {
  return each<Floats>([&](int i) { return x.lane[i] >= bound.lane[i] ? value.lane[i] : 0.0f; });
}
inline Floats keep_lanes(const Floats& x, int first, int last, const Floats& other) {
  return each<Floats>([&](int i) { return i >= first && i < last ? x.lane[i] : other.lane[i]; });
}

inline float sum(Floats x) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; i++) x.lane[i] += x.lane[i + width];
  return x.lane[0];
}
inline float maximum(const Floats& x) {
  float most = x.lane[0];
  for (int i = 1; i < 16; i++) most = most > x.lane[i] ? most : x.lane[i];
  return most;
}
inline float largest_magnitude(const Floats& x) {
  uint32_t most = 0;
  for (const float& lane : x.lane) {
    uint32_t bits;
    std::memcpy(&bits, &lane, sizeof bits);
    bits &= 0x7fffffffu;
    most = most > bits ? most : bits;
  }
  float result;
  std::memcpy(&result, &most, sizeof result);
  return result;
}

// That of each of two.
inline void largest_magnitudes(const Floats& a, const Floats& b, float* most) {
  most[0] = largest_magnitude(a);
  most[1] = largest_magnitude(b);
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t fraction = half & 0x3ffu;
  float result;
  if (exponent == 0) {
    result = static_cast<float>(fraction) * 5.9604644775390625e-08f;  // 2^-24
    return sign ? -result : result;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
inline Floats load_half(const uint16_t* p) {
  return each<Floats>([=](int i) { return half_to_float(p[i]); });
}
inline Floats load_bfloat(const uint16_t* p) {
  return each<Floats>([=](int i) {
    const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  });
}
inline Floats load_powers(const uint8_t* p) {
  return each<Floats>([=](int i) { return kernels::float_of(static_cast<uint32_t>(p[i]) << 23); });
}

inline Floats load_first_bfloats(const uint16_t* p) {
  return each<Floats>([=](int i) { return kernels::from_bfloat(p[2 * i]); });
}
inline Floats load_second_bfloats(const uint16_t* p) { return load_first_bfloats(p + 1); }
inline void store_bfloats(uint16_t* p, const Floats& x) {
  for (int i = 0; i < 16; i++) p[i] = kernels::to_bfloat(x.lane[i]);
}

inline Ints splat_int(int32_t x) {
  return each<Ints>([=](int) { return x; });
}
inline Ints add_ints(const Ints& a, const Ints& b) {
  return each<Ints>([&](int i) { return a.lane[i] + b.lane[i]; });
}
template <int bits>
inline Ints shift_left(const Ints& x) {
  return each<Ints>([&](int i) { return x.lane[i] * (1 << bits); });
}
// What is no number, or out of range, becomes 0.
inline Ints to_ints(const Floats& x) {
  return each<Ints>([&](int i) {
    return x.lane[i] > -4194304.0f && x.lane[i] < 4194304.0f ? static_cast<int32_t>(round_one(x.lane[i])) : 0;
  });
}
inline Floats to_floats(const Ints& x) {
  return each<Floats>([&](int i) { return static_cast<float>(x.lane[i]); });
}
inline int32_t sum_ints(const Ints& x) {
  int32_t total = 0;
  for (int i = 0; i < 16; i++) total += x.lane[i];
  return total;
}
inline void store_bytes(int8_t* p, const Ints& x) {
  for (int i = 0; i < 16; i++) p[i] = static_cast<int8_t>(x.lane[i]);
}

// 32 numbers, and the sum of each sixteen.
inline void store_summed_bytes(int8_t* p, const Ints& a, const Ints& b, int32_t* sums) {
  store_bytes(p, a);
  store_bytes(p + 16, b);
  sums[0] = sum_ints(a);
  sums[1] = sum_ints(b);
}

template <class Function>
inline Bytes each_byte(Function function) {
  Bytes result;
  for (int i = 0; i < 64; i++) result.lane[i] = static_cast<uint8_t>(function(i));
  return result;
}
inline Bytes load_bytes(const uint8_t* p) {
  Bytes result;
  std::memcpy(&result, p, sizeof result);
  return result;
}
inline Bytes low_nibbles(const Bytes& x) {
  return each_byte([&](int i) { return x.lane[i] & 15; });
}
inline Bytes high_nibbles(const Bytes& x) {
  return each_byte([&](int i) { return x.lane[i] >> 4; });
}
inline Bytes look_up(const uint8_t* table, const Bytes& x) {
  return each_byte([&](int i) { return table[x.lane[i]]; });
}
template <int bit>
inline Bytes with_fifth_bit(const Bytes& low, const Bytes& plane) {
  return each_byte([&](int i) { return low.lane[i] | ((plane.lane[i] >> bit) & 1) << 4; });
}
template <int pair>
inline Bytes with_sixth_bits(const Bytes& low, const Bytes& plane) {
  return each_byte([&](int i) { return low.lane[i] | ((plane.lane[i] >> (2 * pair)) & 3) << 4; });
}

constexpr int kWideZero = 128;
template <int kLargest>
inline Ints dot_sets(const Ints& sums, const Bytes* sets, const int8_t* x) {
  return each<Ints>([&](int lane) {
    int32_t sum = sums.lane[lane];
    for (int i = 0; i < 16; i++) sum += sets[i / 4].lane[4 * lane + i % 4] * x[i];
    return sum;
  });
}

inline void prefetch(const void*) {}
inline void prefetch_later(const void*) {}

}  // namespace simd
