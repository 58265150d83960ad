#include "attention.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "vector_math.h"

namespace kernels {
namespace {

using simd::Floats;

constexpr int kSpan = 16;  // pages
constexpr int kSpanPositions = kSpan * kPage;
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kLeast = -1e30f;  // below any score, yet a number

// Scores of kCount queries with one page: [kCount][16] at a stride of kSpanPositions. Even and odd dimensions are added
// apart.
template <class Cache, int kCount>
void page_scores(const typename Cache::Item* keys, const float* const* queries, int head_dim, float* out) {
  Floats even[kCount];
  Floats odd[kCount];
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++) even[j] = odd[j] = simd::zero();
  for (int i = 0; i < head_dim; i += 2) {
    const Floats first = Cache::load(keys + i * kPage);
    const Floats second = Cache::load(keys + (i + 1) * kPage);
#pragma GCC unroll 8
    for (int j = 0; j < kCount; j++) {
      even[j] = simd::fma(first, simd::splat(queries[j][i]), even[j]);
      odd[j] = simd::fma(second, simd::splat(queries[j][i + 1]), odd[j]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++) simd::store(out + j * kSpanPositions, simd::add(even[j], odd[j]));
}

// Adds the weighted values of one page to kCount queries' kVectors vectors of dimensions.
template <class Cache, int kCount, int kVectors>
void page_values(const typename Cache::Item* values, int positions, int head_dim, const float* weights, float* totals) {
  Floats sum[kCount][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) sum[j][v] = simd::load(totals + j * head_dim + v * 16);
  for (int position = 0; position < positions; position++) {
    Floats value[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) value[v] = Cache::load(values + position * head_dim + v * 16);
#pragma GCC unroll 8
    for (int j = 0; j < kCount; j++) {
      const Floats weight = simd::splat(weights[j * kSpanPositions + position]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v++) sum[j][v] = simd::fma(weight, value[v], sum[j][v]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) simd::store(totals + j * head_dim + v * 16, sum[j][v]);
}

// Calls function(first, std::integral_constant<count>) over all of `count`, kMost at a time and then what is left.
template <int kMost, class Function>
void in_groups(int count, Function function) {
  int first = 0;
  for (; count - first >= kMost; first += kMost) function(first, std::integral_constant<int, kMost>());
  if constexpr (kMost > 4) {
    if (count - first >= 4) {
      function(first, std::integral_constant<int, 4>());
      first += 4;
    }
  }
  if constexpr (kMost > 3) {
    if (count - first == 3) return function(first, std::integral_constant<int, 3>());
  }
  if constexpr (kMost > 2) {
    if (count - first == 2) return function(first, std::integral_constant<int, 2>());
  }
  if (count - first == 1) function(first, std::integral_constant<int, 1>());
}

// One span of pages for all queries of a task.
template <class Cache>
class Span {
 public:
  Span(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch)
      : layer_(layer), task_(task), scratch_(scratch), head_dim_(layer.layout().head_dim),
        queries_(task.rows * task.heads) {}

  // The positions of page `page`, counted over the whole sequence: the first, and how many that a row may see.
  int first_position(int page) const {
    const KvLayout& layout = layer_.layout();
    return page / layout.pages() * layout.block_size + page % layout.pages() * kPage;
  }
  int positions(int page) const {
    const KvLayout& layout = layer_.layout();
    const int left = layout.block_size - page % layout.pages() * kPage;
    return std::min({kPage, left, task_.position + task_.rows - first_position(page)});
  }
  const typename Cache::Item* page_at(int page) const {
    const int pages = layer_.layout().pages();
    return layer_.template page<Cache>(task_.blocks[page / pages], task_.kv_head, page % pages);
  }

  void run(int first_page, int last_page, int origin) {
    for (int page = first_page; page < last_page; page++) score(page, (page - origin) * kPage);
    const int from = (first_page - origin) * kPage;
    const int to = (last_page - origin) * kPage;
    for (int query = 0; query < queries_; query++) weigh(query, from, to);
    float* partial = scratch_.partial.data();
    std::fill(partial, partial + static_cast<size_t>(queries_) * head_dim_, 0.0f);
    for (int page = first_page; page < last_page; page++) add_values(page, (page - origin) * kPage);
    for (int query = 0; query < queries_; query++) merge(query);
  }

 private:
  void score(int page, int at) {
    float* scores = scratch_.scores.data() + at;
    const typename Cache::Item* keys = page_at(page);
    in_groups<simd::kQueries>(queries_, [&](int first, auto count) {
      const float* queries[count()];
      for (int j = 0; j < count(); j++) queries[j] = query_at(first + j);
      page_scores<Cache, count()>(keys, queries, head_dim_, scores + first * kSpanPositions);
    });
    const int start = first_position(page);
    const int valid = positions(page);
    for (int query = 0; query < queries_; query++) {
      const int own = task_.position + query / task_.heads;
      const int last = std::min(valid, own + 1 - start);
      const int first = task_.window > 0 ? std::max(0, own + 1 - task_.window - start) : 0;
      if (task_.soft_cap == 0.0f && first == 0 && last == kPage) continue;
      float* row = scores + query * kSpanPositions;
      Floats x = simd::load(row);
      if (task_.soft_cap != 0.0f) x = soft_cap(x, task_.soft_cap);
      simd::store(row, simd::keep_lanes(x, first, std::max(first, last), simd::splat(kNothing)));
    }
  }

  // Scores to weights, relative to the span's largest score.
  void weigh(int query, int from, int to) {
    float* row = scratch_.scores.data() + query * kSpanPositions;
    Floats most = simd::splat(kLeast);
    for (int i = from; i < to; i += kPage) most = simd::max(most, simd::load(row + i));
    const float largest = simd::maximum(most);
    most = simd::splat(largest);
    Floats sum = simd::zero();
    for (int i = from; i < to; i += kPage) {
      const Floats weight = exponential(simd::sub(simd::load(row + i), most));
      simd::store(row + i, weight);
      sum = simd::add(sum, weight);
    }
    span_largest_ = scratch_.largest.data() + queries_;
    span_weights_ = scratch_.weights.data() + queries_;
    span_largest_[query] = largest;
    span_weights_[query] = simd::sum(sum);
  }

  void add_values(int page, int at) {
    const float* weights = scratch_.scores.data() + at;
    const typename Cache::Item* values = page_at(page) + static_cast<size_t>(kPage) * head_dim_;
    const int valid = positions(page);
    in_groups<simd::kQueries / 2>(queries_, [&](int first, auto count) {
      const float* w = weights + first * kSpanPositions;
      float* totals = scratch_.partial.data() + static_cast<size_t>(first) * head_dim_;
      int dimension = 0;
      for (; dimension + 16 * simd::kValueVectors <= head_dim_; dimension += 16 * simd::kValueVectors)
        page_values<Cache, count(), simd::kValueVectors>(values + dimension, valid, head_dim_, w, totals + dimension);
      for (; dimension < head_dim_; dimension += 16)
        page_values<Cache, count(), 1>(values + dimension, valid, head_dim_, w, totals + dimension);
    });
  }

  // Joins the span to what was before it.
  void merge(int query) {
    float* largest = scratch_.largest.data();
    float* weights = scratch_.weights.data();
    const float most = std::max(largest[query], span_largest_[query]);
    float factors[16] = {largest[query] - most, span_largest_[query] - most};
    simd::store(factors, exponential(simd::load(factors)));
    float* total = scratch_.totals.data() + static_cast<size_t>(query) * head_dim_;
    const float* partial = scratch_.partial.data() + static_cast<size_t>(query) * head_dim_;
    for (int i = 0; i < head_dim_; i += 16)
      simd::store(total + i, simd::fma(simd::load(total + i), simd::splat(factors[0]),
                                       simd::mul(simd::load(partial + i), simd::splat(factors[1]))));
    weights[query] = weights[query] * factors[0] + span_weights_[query] * factors[1];
    largest[query] = most;
  }

  const float* query_at(int query) const {
    return task_.queries + static_cast<size_t>(query / task_.heads) * task_.query_stride +
           query % task_.heads * head_dim_;
  }

  const KvLayer& layer_;
  const AttentionTask& task_;
  AttentionScratch& scratch_;
  const int head_dim_;
  const int queries_;
  float* span_largest_ = nullptr;
  float* span_weights_ = nullptr;
};

}  // namespace

int attention_rows(int heads) { return std::max(1, 2 * simd::kQueries / heads); }

template <class Cache>
void attend(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch) {
  const int queries = task.rows * task.heads;
  const int head_dim = layer.layout().head_dim;
  const size_t items = static_cast<size_t>(queries) * head_dim;
  scratch.scores.reserve(static_cast<size_t>(queries) * kSpanPositions);
  scratch.totals.reserve(items);
  scratch.partial.reserve(items);
  scratch.weights.reserve(2 * static_cast<size_t>(queries));
  scratch.largest.reserve(2 * static_cast<size_t>(queries));
  std::fill(scratch.totals.data(), scratch.totals.data() + items, 0.0f);
  std::fill(scratch.weights.data(), scratch.weights.data() + queries, 0.0f);
  std::fill(scratch.largest.data(), scratch.largest.data() + queries, kLeast);

  const KvLayout& layout = layer.layout();
  const auto page_of = [&](int position) {
    return position / layout.block_size * layout.pages() + position % layout.block_size / kPage;
  };
  const int last_page = page_of(task.position + task.rows - 1) + 1;
  const int first_page = task.window > 0 ? page_of(std::max(0, task.position + 1 - task.window)) : 0;
  Span<Cache> span(layer, task, scratch);
  for (int origin = first_page / kSpan * kSpan; origin < last_page; origin += kSpan)
    span.run(std::max(first_page, origin), std::min(last_page, origin + kSpan), origin);

  for (int query = 0; query < queries; query++) {
    const Floats share = simd::splat(1.0f / scratch.weights.data()[query]);
    float* out = task.out + static_cast<size_t>(query / task.heads) * task.out_stride + query % task.heads * head_dim;
    const float* total = scratch.totals.data() + static_cast<size_t>(query) * head_dim;
    for (int i = 0; i < head_dim; i += 16) simd::store(out + i, simd::mul(simd::load(total + i), share));
  }
}

template void attend<SingleCache>(const KvLayer&, const AttentionTask&, AttentionScratch&);
template void attend<BfloatCache>(const KvLayer&, const AttentionTask&, AttentionScratch&);

}  // namespace kernels
