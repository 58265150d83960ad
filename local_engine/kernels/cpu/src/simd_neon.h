// Sixteen lanes as four NEON registers, with the dot product instructions of ARMv8.2.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "half.h"

namespace simd {

struct Floats {
  float32x4_t part[4];
};
struct Ints {
  int32x4_t part[4];
};
struct Bytes {
  uint8x16_t part[4];
};

constexpr int kTileRows = 4;
constexpr int kDenseRows = 2;
constexpr int kTwoChainRows = 2;
constexpr int kQueries = 2;
constexpr int kTwoChainQueries = 2;
constexpr int kValueQueries = 2;
constexpr int kValueVectors = 2;
constexpr int kStateVectors = 2;

template <class Lanes, class Function>
inline Lanes each(Function function) {
  return {{function(0), function(1), function(2), function(3)}};
}

inline Floats splat(float x) {
  return each<Floats>([=](int) { return vdupq_n_f32(x); });
}
inline Floats zero() { return splat(0.0f); }
inline Floats load(const float* p) {
  return each<Floats>([=](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store(float* p, const Floats& x) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.part[i]);
}
inline Floats add(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
}
inline Floats sub(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
}
inline Floats mul(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
}
inline Floats div(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
}
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return each<Floats>([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
}
inline Floats max(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vmaxq_f32(a.part[i], b.part[i]); });
}
inline Floats min(const Floats& a, const Floats& b) {
  return each<Floats>([&](int i) { return vminq_f32(a.part[i], b.part[i]); });
}
inline Floats round_even(const Floats& x) {
  return each<Floats>([&](int i) { return vrndnq_f32(x.part[i]); });
}
inline Floats scale_by_power(const Floats& x, const Floats& n) {
  return each<Floats>([&](int i) {
    const int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.part[i]), vdupq_n_s32(127)), 23);
    return vmulq_f32(x.part[i], vreinterpretq_f32_s32(bits));
  });
}
inline Floats zero_below(const Floats& value, const Floats& x, const Floats& bound) {
  return each<Floats>([&](int i) {
    return vbslq_f32(vcgeq_f32(x.part[i], bound.part[i]), value.part[i], vdupq_n_f32(0.0f));
  });
}
inline Floats keep_lanes(const Floats& x, int first, int last, const Floats& other) {
  const int32_t start[4] = {0, 1, 2, 3};
  return each<Floats>([&](int i) {
    const int32x4_t lane = vaddq_s32(vld1q_s32(start), vdupq_n_s32(4 * i));
    const uint32x4_t inside = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(first)), vcltq_s32(lane, vdupq_n_s32(last)));
    return vbslq_f32(inside, x.part[i], other.part[i]);
  });
}

inline float sum(const Floats& x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.part[0], x.part[2]), vaddq_f32(x.part[1], x.part[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float maximum(const Floats& x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.part[0], x.part[1]), vmaxq_f32(x.part[2], x.part[3])));
}
inline float largest_magnitude(const Floats& x) {
  int32x4_t most = vdupq_n_s32(0);
  for (const float32x4_t& part : x.part)
    most = vmaxq_s32(most, vandq_s32(vreinterpretq_s32_f32(part), vdupq_n_s32(0x7fffffff)));
  const int32_t bits = vmaxvq_s32(most);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// That of each of two.
inline void largest_magnitudes(const Floats& a, const Floats& b, float* most) {
  most[0] = largest_magnitude(a);
  most[1] = largest_magnitude(b);
}

inline Floats load_half(const uint16_t* p) {
  return each<Floats>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
inline Floats load_bfloat(const uint16_t* p) {
  return each<Floats>([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
inline Floats load_powers(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
  const uint16x4_t parts[4] = {vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)};
  return each<Floats>([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(parts[i]), 23)); });
}

inline Floats load_first_bfloats(const uint16_t* p) {
  return each<Floats>([=](int i) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)), 16));
  });
}
inline Floats load_second_bfloats(const uint16_t* p) {
  return each<Floats>([=](int i) {
    const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  });
}

inline void store_bfloats(uint16_t* p, const Floats& x) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < 16; i++) p[i] = kernels::to_bfloat(lanes[i]);
}

inline Ints splat_int(int32_t x) {
  return each<Ints>([=](int) { return vdupq_n_s32(x); });
}
inline Ints add_ints(const Ints& a, const Ints& b) {
  return each<Ints>([&](int i) { return vaddq_s32(a.part[i], b.part[i]); });
}
template <int bits>
inline Ints shift_left(const Ints& x) {
  return each<Ints>([&](int i) { return vshlq_n_s32(x.part[i], bits); });
}
inline Ints to_ints(const Floats& x) {
  return each<Ints>([&](int i) { return vcvtnq_s32_f32(x.part[i]); });
}
inline Floats to_floats(const Ints& x) {
  return each<Floats>([&](int i) { return vcvtq_f32_s32(x.part[i]); });
}
inline int32_t sum_ints(const Ints& x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.part[0], x.part[1]), vaddq_s32(x.part[2], x.part[3])));
}
inline void store_bytes(int8_t* p, const Ints& x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.part[0]), vmovn_s32(x.part[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.part[2]), vmovn_s32(x.part[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

// 32 numbers, and the sum of each sixteen.
inline void store_summed_bytes(int8_t* p, const Ints& a, const Ints& b, int32_t* sums) {
  store_bytes(p, a);
  store_bytes(p + 16, b);
  sums[0] = sum_ints(a);
  sums[1] = sum_ints(b);
}

inline Bytes load_bytes(const uint8_t* p) {
  return each<Bytes>([=](int i) { return vld1q_u8(p + 16 * i); });
}
inline Bytes low_nibbles(const Bytes& x) {
  return each<Bytes>([&](int i) { return vandq_u8(x.part[i], vdupq_n_u8(15)); });
}
inline Bytes high_nibbles(const Bytes& x) {
  return each<Bytes>([&](int i) { return vshrq_n_u8(x.part[i], 4); });
}
inline Bytes look_up(const uint8_t* table, const Bytes& x) {
  return each<Bytes>([&](int i) { return vqtbl1q_u8(vld1q_u8(table), x.part[i]); });
}
template <int by>
inline uint8x16_t moved(uint8x16_t x) {
  return vshlq_u8(x, vdupq_n_s8(by));
}
template <int bit>
inline Bytes with_fifth_bit(const Bytes& low, const Bytes& plane) {
  return each<Bytes>(
      [&](int i) { return vorrq_u8(low.part[i], vandq_u8(moved<4 - bit>(plane.part[i]), vdupq_n_u8(16))); });
}
template <int pair>
inline Bytes with_sixth_bits(const Bytes& low, const Bytes& plane) {
  return each<Bytes>(
      [&](int i) { return vorrq_u8(low.part[i], vandq_u8(moved<4 - 2 * pair>(plane.part[i]), vdupq_n_u8(48))); });
}

constexpr int kWideZero = 0;  // the zero is taken off here
template <int kLargest>
inline Ints dot_sets(Ints sums, const Bytes* sets, const int8_t* x) {
  for (int i = 0; i < 4; i++) {
    int32_t bytes;
    std::memcpy(&bytes, x + 4 * i, sizeof bytes);
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(bytes));
    sums = each<Ints>([&](int part) {
      const uint8x16_t w = sets[i].part[part];
      const uint8x16_t weights = kLargest < 128 ? w : veorq_u8(w, vdupq_n_u8(128));
      return vdotq_s32(sums.part[part], vreinterpretq_s8_u8(weights), four);
    });
  }
  return sums;
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_later(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace simd
