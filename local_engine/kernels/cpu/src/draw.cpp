#include "draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "vector_math.h"

namespace kernels {
namespace {

constexpr int kLanes = 16;
// Tokens whose weights are added up at once while the drawn one is looked for.
constexpr int kBlock = 1024;
// Scaled logits below the largest from which candidates for a nucleus are gathered, in turns: nearly always the first do.
constexpr float kDepths[] = {6.0f, 12.0f, 24.0f, std::numeric_limits<float>::infinity()};

struct Candidate {
  float scaled;
  int32_t id;
};

// (logit - largest) / temperature, as floats.
class ScaledRow {
 public:
  ScaledRow(const float* logits, int count, float largest, float temperature)
      : logits_(logits), count_(count), largest_(largest), temperature_(temperature) {}

  int count() const { return count_; }
  float at(int id) const { return (logits_[id] - largest_) / temperature_; }
  simd::Floats vector(int id) const {
    return simd::div(simd::sub(simd::load(logits_ + id), simd::splat(largest_)), simd::splat(temperature_));
  }

  // The weights of tokens first to last - 1, added up.
  double weight(int first, int last) const {
    simd::Floats sum = simd::zero();
    for (; first + kLanes <= last; first += kLanes) sum = simd::add(sum, exponential(vector(first)));
    double total = simd::sum(sum);
    for (; first < last; first++) total += weight_of(at(first));
    return total;
  }

  static float weight_of(float scaled) {
    float lanes[kLanes] = {scaled};
    simd::store(lanes, exponential(simd::load(lanes)));
    return lanes[0];
  }

  // Calls function(id, scaled) for tokens of at least *floor, which may rise on the way.
  template <class Function>
  void at_least(const float* floor, Function function) const {
    int id = 0;
    for (; id + kLanes <= count_; id += kLanes) {
      const simd::Floats x = vector(id);
      if (simd::maximum(x) < *floor) continue;
      float lanes[kLanes];
      simd::store(lanes, x);
      for (int i = 0; i < kLanes; i++)
        if (lanes[i] >= *floor) function(id + i, lanes[i]);
    }
    for (; id < count_; id++)
      if (at(id) >= *floor) function(id, at(id));
  }

 private:
  const float* logits_;
  int count_;
  float largest_;
  float temperature_;
};

// The k-th largest scaled logit: a heap of the k largest so far, whose least is the floor for the next.
float top_k_floor(const ScaledRow& row, int k) {
  std::vector<float> heap;
  heap.reserve(k + 1);
  float floor = -std::numeric_limits<float>::infinity();
  row.at_least(&floor, [&](int, float scaled) {
    heap.push_back(scaled);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (static_cast<int>(heap.size()) > k) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
    }
    if (static_cast<int>(heap.size()) == k) floor = heap.front();
  });
  return floor;
}

std::vector<Candidate> candidates(const ScaledRow& row, float floor) {
  std::vector<Candidate> found;
  row.at_least(&floor, [&](int id, float scaled) {
    if (scaled > -std::numeric_limits<float>::infinity()) found.push_back({scaled, id});
  });
  return found;
}

// The least scaled logit of the smallest set of likeliest tokens whose weight reaches `share` of that of all at or above
// `floor`.
float nucleus_floor(const ScaledRow& row, float floor, double share) {
  const bool cut = floor > -std::numeric_limits<float>::infinity();
  double needed = -1;
  for (const float depth : kDepths) {
    const float reach = std::max(floor, -depth);
    std::vector<Candidate> found = candidates(row, reach);
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.scaled > b.scaled; });
    std::vector<double> weights;
    weights.reserve(found.size());
    double all = 0;
    for (const Candidate& candidate : found) {
      weights.push_back(ScaledRow::weight_of(candidate.scaled));
      all += weights.back();
    }
    if (needed < 0) {
      // Without a cut before, the tokens that are not gathered count as well.
      double total = 0;
      if (cut) {
        for (const Candidate& candidate : reach == floor ? found : candidates(row, floor))
          total += ScaledRow::weight_of(candidate.scaled);
      } else {
        for (int first = 0; first < row.count(); first += kBlock)
          total += row.weight(first, std::min(row.count(), first + kBlock));
      }
      needed = share * total;
    }
    if (all < needed && reach > floor) continue;
    double reached = 0;
    for (size_t i = 0; i < found.size(); i++) {
      reached += weights[i];
      if (reached >= needed) return found[i].scaled;
    }
    return found.empty() ? floor : found.back().scaled;
  }
  return floor;
}

int64_t draw_from(const std::vector<Candidate>& kept, double noise) {
  double total = 0;
  std::vector<double> reached;
  reached.reserve(kept.size());
  for (const Candidate& candidate : kept) {
    total += ScaledRow::weight_of(candidate.scaled);
    reached.push_back(total);
  }
  const size_t at = std::upper_bound(reached.begin(), reached.end(), noise * total) - reached.begin();
  return kept[std::min(at, kept.size() - 1)].id;
}

int64_t draw_from_all(const ScaledRow& row, double noise) {
  std::vector<double> reached;
  double total = 0;
  for (int first = 0; first < row.count(); first += kBlock) {
    total += row.weight(first, std::min(row.count(), first + kBlock));
    reached.push_back(total);
  }
  const double target = noise * total;
  const size_t block = std::min<size_t>(std::upper_bound(reached.begin(), reached.end(), target) - reached.begin(),
                                        reached.size() - 1);
  double sum = block == 0 ? 0 : reached[block - 1];
  int last = -1;
  const int end = std::min(row.count(), static_cast<int>(block + 1) * kBlock);
  for (int id = static_cast<int>(block) * kBlock; id < end; id++) {
    const float weight = ScaledRow::weight_of(row.at(id));
    if (weight == 0.0f) continue;
    last = id;
    sum += weight;
    if (sum > target) break;
  }
  return last;
}

}  // namespace

int64_t likeliest(const float* logits, int count, float* largest) {
  float best = -std::numeric_limits<float>::infinity();
  int where = 0;  // the block of the best so far
  simd::Floats poison = simd::zero();  // x - x is no number where x is none, or infinite
  for (int first = 0; first < count; first += kBlock) {
    const int last = std::min(count, first + kBlock);
    simd::Floats most = simd::splat(-std::numeric_limits<float>::infinity());
    int id = first;
    for (; id + kLanes <= last; id += kLanes) {
      const simd::Floats x = simd::load(logits + id);
      most = simd::max(x, most);
      poison = simd::add(simd::sub(x, x), poison);
    }
    float of_block = simd::maximum(most);
    for (; id < last; id++) {
      of_block = logits[id] > of_block ? logits[id] : of_block;
      if (logits[id] != logits[id]) poison = simd::splat(logits[id]);
    }
    if (of_block > best) {
      best = of_block;
      where = first;
    }
  }
  if (const float sum = simd::sum(poison); sum != sum) {
    for (int id = 0; id < count; id++) {
      if (logits[id] == logits[id]) continue;
      *largest = logits[id];
      return id;
    }
  }
  *largest = best;
  int id = where;
  while (id + 1 < count && logits[id] != best) id++;
  return id;
}

Normaliser top_logits(const float* logits, int count, int top, float* values, int64_t* tokens) {
  float largest = 0;
  likeliest(logits, count, &largest);
  const ScaledRow row(logits, count, largest, 1.0f);
  double sum = 0;
  for (int first = 0; first < count; first += kBlock) sum += row.weight(first, std::min(count, first + kBlock));
  // A heap of the best so far, the worst of them in front. Tokens come in order, so one that only equals it is no better.
  std::vector<Candidate> best;
  best.reserve(static_cast<size_t>(top) + 1);
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.scaled > b.scaled || (a.scaled == b.scaled && a.id < b.id);
  };
  float floor = -std::numeric_limits<float>::infinity();
  if (top > 0) {
    row.at_least(&floor, [&](int id, float) {
      best.push_back({logits[id], id});
      std::push_heap(best.begin(), best.end(), better);
      if (static_cast<int>(best.size()) > top) {
        std::pop_heap(best.begin(), best.end(), better);
        best.pop_back();
      }
      if (static_cast<int>(best.size()) == top) floor = best.front().scaled - largest;
    });
  }
  std::sort_heap(best.begin(), best.end(), better);
  best.resize(top, {std::numeric_limits<float>::quiet_NaN(), 0});  // where there are no numbers
  for (int i = 0; i < top; i++) {
    values[i] = best[i].scaled;
    tokens[i] = best[i].id;
  }
  return {largest, static_cast<float>(std::log(sum))};
}

int64_t draw(const float* logits, int count, const DrawRule& rule) {
  float largest = 0;
  const int64_t first = likeliest(logits, count, &largest);
  const ScaledRow row(logits, count, largest, rule.temperature);
  float floor = -std::numeric_limits<float>::infinity();
  if (rule.top_k > 0 && rule.top_k < count) floor = top_k_floor(row, rule.top_k);
  if (rule.top_p < 1.0) floor = nucleus_floor(row, floor, rule.top_p);
  floor = std::max(floor, rule.log_min_p);
  if (floor == -std::numeric_limits<float>::infinity()) return draw_from_all(row, rule.noise);
  const std::vector<Candidate> kept = candidates(row, floor);
  return kept.empty() ? first : draw_from(kept, rule.noise);
}

}  // namespace kernels
