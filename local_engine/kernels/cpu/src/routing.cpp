#include "routing.h"

#include <algorithm>
#include <limits>

#include "vector_math.h"

namespace kernels {
namespace {

using simd::Floats;

constexpr float kOut = -std::numeric_limits<float>::infinity();
constexpr float kWorst = std::numeric_limits<float>::lowest();
// What keeps a sum of scores from 0.
constexpr float kLeastSum = 1e-20f;

void find_scores(const Routing& routing, const float* logits, float* scores) {
  const int padded = padded_experts(routing.count);
  if (routing.sigmoid != 0) {
    for (int i = 0; i < padded; i += 16) simd::store(scores + i, sigmoid(simd::load(logits + i)));
    return;
  }
  Floats most = simd::load(logits);
  for (int i = 16; i < padded; i += 16) most = simd::max(most, simd::load(logits + i));
  const Floats largest = simd::splat(simd::maximum(most));
  Floats total = simd::zero();
  for (int i = 0; i < padded; i += 16) {
    const Floats power = exponential(simd::sub(simd::load(logits + i), largest));
    simd::store(scores + i, power);
    total = simd::add(total, power);
  }
  const Floats sum = simd::splat(simd::sum(total));
  for (int i = 0; i < padded; i += 16) simd::store(scores + i, simd::div(simd::load(scores + i), sum));
}

// a is chosen rather than b, both of them places in `values`.
bool is_better(const float* values, int a, int b) { return values[a] > values[b] || (values[a] == values[b] && a < b); }

void leave_out_groups(const Routing& routing, bool corrected, float* judged, float* best) {
  const int size = routing.count / routing.groups;
  for (int group = 0; group < routing.groups; group++) {
    float first = kOut;
    float second = kOut;
    for (int i = group * size; i < (group + 1) * size; i++) {
      second = std::max(second, std::min(first, judged[i]));
      first = std::max(first, judged[i]);
    }
    best[group] = corrected ? first + second : first;
  }
  for (int group = 0; group < routing.groups; group++) {
    int better = 0;
    for (int other = 0; other < routing.groups; other++) better += is_better(best, other, group) ? 1 : 0;
    if (better >= routing.used_groups) std::fill(judged + group * size, judged + (group + 1) * size, kOut);
  }
}

}  // namespace

void choose_experts(const Routing& routing, const float* correction, float* memory, Choice* chosen) {
  const int count = routing.count;
  const int padded = padded_experts(count);
  float* judged = memory;
  float* scores = memory + padded;
  std::fill(judged + count, judged + padded, kOut);
  find_scores(routing, judged, scores);
  for (int i = 0; i < count; i++) {
    if (correction != nullptr) judged[i] = scores[i] + correction[i];
    if (!(judged[i] >= kWorst)) judged[i] = kWorst;
  }
  if (routing.groups > 1) leave_out_groups(routing, correction != nullptr, judged, memory + 2 * padded);
  int last = -1;
  for (int k = 0; k < routing.per_token; k++) {
    int best = -1;
    for (int i = 0; i < count; i++)
      if ((last < 0 || is_better(judged, last, i)) && (best < 0 || judged[i] > judged[best])) best = i;
    chosen[k] = {best, scores[best]};
    last = best;
  }
  std::sort(chosen, chosen + routing.per_token, [](Choice a, Choice b) { return a.expert < b.expert; });
  float divisor = 1.0f;
  if (routing.normalised != 0) {
    divisor = kLeastSum;
    for (int k = 0; k < routing.per_token; k++) divisor += chosen[k].share;
  }
  for (int k = 0; k < routing.per_token; k++) chosen[k].share = chosen[k].share / divisor * routing.scale;
}

}  // namespace kernels
