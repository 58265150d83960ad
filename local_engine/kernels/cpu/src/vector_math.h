// Functions of vectors that the layers share: exponential, activation, norm, rotation.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd.h"

namespace kernels {

// e^x within 2 units in the last place; 0 below -87, and never more than e^88.
inline simd::Floats exponential(simd::Floats x) {
  const simd::Floats least = simd::splat(-87.0f);
  const simd::Floats bounded = simd::min(simd::max(x, least), simd::splat(88.0f));
  // x = n ln 2 + r with ln 2 in two parts, then a polynomial of degree 6 (coefficients of Cephes' expf).
  const simd::Floats n = simd::round_even(simd::mul(bounded, simd::splat(1.44269504088896341f)));
  simd::Floats r = simd::fma(n, simd::splat(-0.693359375f), bounded);
  r = simd::fma(n, simd::splat(2.12194440e-4f), r);
  simd::Floats p = simd::splat(1.9875691500e-4f);
  p = simd::fma(p, r, simd::splat(1.3981999507e-3f));
  p = simd::fma(p, r, simd::splat(8.3334519073e-3f));
  p = simd::fma(p, r, simd::splat(4.1665795894e-2f));
  p = simd::fma(p, r, simd::splat(1.6666665459e-1f));
  p = simd::fma(p, r, simd::splat(5.0000001201e-1f));
  p = simd::fma(p, simd::mul(r, r), simd::add(r, simd::splat(1.0f)));
  return simd::zero_below(simd::scale_by_power(p, n), x, least);
}

// 1 - 2 / (e^2x + 1), which is exact at both ends and within 2e-7 between them.
inline simd::Floats hyperbolic_tangent(simd::Floats x) {
  const simd::Floats bounded = simd::min(simd::max(x, simd::splat(-20.0f)), simd::splat(20.0f));
  const simd::Floats power = exponential(simd::add(bounded, bounded));
  const simd::Floats one = simd::splat(1.0f);
  return simd::sub(one, simd::div(simd::splat(2.0f), simd::add(power, one)));
}

// c * tanh(x / c).
inline simd::Floats soft_cap(simd::Floats x, float cap) {
  return simd::mul(simd::splat(cap), hyperbolic_tangent(simd::div(x, simd::splat(cap))));
}

inline simd::Floats sigmoid(simd::Floats x) {
  const simd::Floats one = simd::splat(1.0f);
  return simd::div(one, simd::add(one, exponential(simd::sub(simd::zero(), x))));
}

// Of gated units. The numbers are part of the interface to Python.
enum Activation : int32_t { kSilu = 0, kGeluTanh = 1 };

inline simd::Floats activate(int32_t kind, simd::Floats x) {
  const simd::Floats one = simd::splat(1.0f);
  if (kind == kSilu) return simd::div(x, simd::add(one, exponential(simd::sub(simd::zero(), x))));
  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  const simd::Floats cube = simd::mul(simd::mul(x, x), x);
  const simd::Floats inner =
      simd::mul(simd::splat(0.79788456080286536f), simd::fma(cube, simd::splat(0.044715f), x));
  return simd::mul(simd::mul(simd::splat(0.5f), x), simd::add(one, hyperbolic_tangent(inner)));
}

// (up + 1) * gate * sigmoid(slope * gate), with gate at most `limit` and up within it on both sides. What is no number
// stays none.
inline simd::Floats clamped_unit(simd::Floats gate, simd::Floats up, float slope, float limit) {
  const simd::Floats one = simd::splat(1.0f);
  const simd::Floats most = simd::splat(limit);
  const simd::Floats bounded = simd::min(most, gate);
  const simd::Floats within = simd::max(simd::splat(-limit), simd::min(most, up));
  const simd::Floats power = exponential(simd::mul(bounded, simd::splat(-slope)));
  return simd::div(simd::mul(simd::add(within, one), bounded), simd::add(one, power));
}

// out = x / sqrt(mean(x^2) + eps) * weight over `count` items, a multiple of 16. out may be x.
inline void rms_norm(const float* x, const float* weight, float eps, int count, float* out) {
  simd::Floats squares = simd::zero();
  for (int i = 0; i < count; i += 16) {
    const simd::Floats v = simd::load(x + i);
    squares = simd::fma(v, v, squares);
  }
  const simd::Floats factor =
      simd::splat(1.0f / std::sqrt(simd::sum(squares) / static_cast<float>(count) + eps));
  for (int i = 0; i < count; i += 16)
    simd::store(out + i, simd::mul(simd::mul(simd::load(x + i), factor), simd::load(weight + i)));
}

// (x - mean(x)) / sqrt(variance(x) + eps) * weight, likewise.
inline void layer_norm(const float* x, const float* weight, float eps, int count, float* out) {
  simd::Floats total = simd::zero();
  for (int i = 0; i < count; i += 16) total = simd::add(total, simd::load(x + i));
  const simd::Floats mean = simd::splat(simd::sum(total) / static_cast<float>(count));
  for (int i = 0; i < count; i += 16) simd::store(out + i, simd::sub(simd::load(x + i), mean));
  rms_norm(out, weight, eps, count, out);
}

// Turns dimension i together with i + rotary / 2 by the angles whose cosines and sines are given: rotary / 2 of each,
// rotary a multiple of 32.
inline void rotate(float* x, const float* cosines, const float* sines, int rotary) {
  const int half = rotary / 2;
  for (int i = 0; i < half; i += 16) {
    const simd::Floats a = simd::load(x + i);
    const simd::Floats b = simd::load(x + half + i);
    const simd::Floats c = simd::load(cosines + i);
    const simd::Floats s = simd::load(sines + i);
    simd::store(x + i, simd::sub(simd::mul(a, c), simd::mul(b, s)));
    simd::store(x + half + i, simd::fma(a, s, simd::mul(b, c)));
  }
}

// The same of dimensions that lie pair by pair, rotary any even number.
inline void rotate_pairs(float* x, const float* cosines, const float* sines, int rotary) {
  for (int i = 0; i < rotary / 2; i++) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

inline float dot(const float* a, const float* b, int count) {
  simd::Floats sum = simd::zero();
  for (int i = 0; i < count; i += 16) sum = simd::fma(simd::load(a + i), simd::load(b + i), sum);
  return simd::sum(sum);
}

// out += x * factor.
inline void add_scaled(const float* x, float factor, int count, float* out) {
  const simd::Floats factors = simd::splat(factor);
  for (int i = 0; i < count; i += 16) simd::store(out + i, simd::fma(simd::load(x + i), factors, simd::load(out + i)));
}

inline void add_to(float* x, const float* y, int count) {
  for (int i = 0; i < count; i += 16) simd::store(x + i, simd::add(simd::load(x + i), simd::load(y + i)));
}

}  // namespace kernels
