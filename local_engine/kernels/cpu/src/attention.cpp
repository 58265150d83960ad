#include "attention.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "vector_math.h"

namespace kernels {
namespace {

using simd::Floats;

constexpr int kSpan = 16;  // pages
constexpr int kSpanPositions = kSpan * kPage;
constexpr int kTaskQueries = 24;  // so many that keys and values come from memory as fast as they are used
constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kLeast = -1e30f;  // below any score, yet a number

const uint8_t* bytes(const void* at) { return static_cast<const uint8_t*>(at); }

// Scores of kCount queries, one behind the other, with one page: [kCount][16] at a stride of kSpanPositions. Loads
// of the page at even and at odd places are added apart: both at once, or one after the other where registers do not hold
// the sums of both. With each load goes one for later, so many bytes ahead: asked for all at once they would come slower.
template <class Cache, int kCount>
void page_scores(const typename Cache::Item* keys, ptrdiff_t ahead, const typename Cache::Factor* queries, int head_dim,
                 float* out) {
  constexpr int kPair = Cache::kPair;
  constexpr int kChains = kCount <= simd::kTwoChainQueries ? 2 : 1;
  Floats totals[2][kCount];
  for (int chain = 0; chain < 2; chain += kChains) {
    Floats sums[kChains][kCount];
#pragma GCC unroll 2
    for (int i = 0; i < kChains; i++)
#pragma GCC unroll 8
      for (int j = 0; j < kCount; j++) sums[i][j] = simd::zero();
    for (int at = chain * kPair; at < head_dim; at += 2 * kPair) {
#pragma GCC unroll 2
      for (int i = 0; i < kChains; i++) {
        const typename Cache::Item* place = keys + (at + i * kPair) * kPage;
        simd::prefetch_later(bytes(place) + ahead);
        const auto page = Cache::load(place);
#pragma GCC unroll 8
        for (int j = 0; j < kCount; j++) sums[i][j] = Cache::dot(sums[i][j], page, queries + j * head_dim + at + i * kPair);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kChains; i++)
#pragma GCC unroll 8
      for (int j = 0; j < kCount; j++) totals[chain + i][j] = sums[i][j];
  }
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++) simd::store(out + j * kSpanPositions, simd::add(totals[0][j], totals[1][j]));
}

// Adds the weighted values of one page to kCount queries' kVectors vectors of dimensions, at a stride of `stride`.
template <class Cache, int kCount, int kVectors>
void page_values(const typename Cache::Item* values, ptrdiff_t ahead, int positions, int value_dim,
                 const typename Cache::Factor* weights, int stride, float* totals) {
  constexpr int kPair = Cache::kPair;
  Floats sum[kCount][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) sum[j][v] = simd::load(totals + j * stride + v * 16);
  const auto add = [&](int position, auto value_at) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      const typename Cache::Item* place = values + position * value_dim + v * 16 * kPair;
      simd::prefetch_later(bytes(place) + ahead);
      const auto value = value_at(place);
#pragma GCC unroll 8
      for (int j = 0; j < kCount; j++)
        sum[j][v] = Cache::dot(sum[j][v], value, weights + j * kSpanPositions + position);
    }
  };
  int position = 0;
  for (; position + kPair <= positions; position += kPair)
    add(position, [](const typename Cache::Item* at) { return Cache::load(at); });
  // The second of the last pair has no value yet, and what is there may be no number.
  if (position < positions)
    add(position, [](const typename Cache::Item* at) { return Cache::first(Cache::load(at)); });
#pragma GCC unroll 8
  for (int j = 0; j < kCount; j++)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) simd::store(totals + j * stride + v * 16, sum[j][v]);
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

// Of one query: its weighted values, the sum of the weights, the largest score.
int span_stride(int value_dim) { return value_dim + 16; }

int page_of(const KvLayout& layout, int position) {
  return position / layout.block_size * layout.pages() + position % layout.block_size / kPage;
}

// The pages that a task's rows see.
int first_page(const KvLayout& layout, const AttentionTask& task) {
  return task.window > 0 ? page_of(layout, std::max(0, task.position + 1 - task.window)) : 0;
}
int seen_by_any(const AttentionTask& task) { return std::max(task.position + task.rows, task.seen); }
int last_page(const KvLayout& layout, const AttentionTask& task) { return page_of(layout, seen_by_any(task) - 1) + 1; }

// One span of pages for all queries of a task.
template <class Cache>
class Span {
 public:
  using Item = typename Cache::Item;
  using Factor = typename Cache::Factor;

  Span(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch, float* out)
      : layer_(layer), task_(task), out_(out), head_dim_(layer.layout().head_dim), value_dim_(layer.layout().value_dim),
        stride_(span_stride(value_dim_)), queries_(task.rows * task.heads) {
    const size_t items = static_cast<size_t>(queries_) * head_dim_;
    scratch.scores.reserve(static_cast<size_t>(queries_) * kSpanPositions);
    scratch.weights.reserve(static_cast<size_t>(queries_) * kSpanPositions * sizeof(Factor));
    scratch.queries.reserve(items * sizeof(Factor));
    scores_ = scratch.scores.data();
    weights_ = reinterpret_cast<Factor*>(scratch.weights.data());
    rounded_queries_ = reinterpret_cast<Factor*>(scratch.queries.data());
    last_ = last_page(layer.layout(), task);
    if (task.next != nullptr) {
      next_first_ = first_page(layer.layout(), *task.next);
      next_last_ = last_page(layer.layout(), *task.next);
    }
  }

  void run(int first, int last, int origin) {
    round_queries();
    for (int page = first; page < last; page++) score(page, (page - origin) * kPage);
    const int from = (first - origin) * kPage;
    const int to = (last - origin) * kPage;
    for (int query = 0; query < queries_; query++) weigh(query, from, to);
    for (int page = first; page < last; page++) add_values(page, (page - origin) * kPage);
  }

 private:
  // The positions of page `page`, counted over the whole sequence: the first, and how many that a row may see.
  int first_position(int page) const {
    const KvLayout& layout = layer_.layout();
    return page / layout.pages() * layout.block_size + page % layout.pages() * kPage;
  }
  int positions(int page) const {
    const KvLayout& layout = layer_.layout();
    const int left = layout.block_size - page % layout.pages() * kPage;
    return std::min({kPage, left, seen_by_any(task_) - first_position(page)});
  }
  const Item* page_at(int page) const { return page_at(task_, page); }
  const Item* page_at(const AttentionTask& task, int page) const {
    const int pages = layer_.layout().pages();
    return layer_.template page<Cache>(task.blocks[page / pages], task.kv_head, page % pages);
  }

  // The page whose keys are read soon after the values of this one: of the span behind it, or of the next task's first.
  // This one where there is none.
  const Item* page_behind(int page) const {
    if (page + kSpan < last_) return page_at(page + kSpan);
    const int there = next_first_ / kSpan * kSpan + page % kSpan;
    return there >= next_first_ && there < next_last_ ? page_at(*task_.next, there) : page_at(page);
  }

  void round_queries() {
    for (int query = 0; query < queries_; query++) {
      const float* from = task_.queries + static_cast<size_t>(query / task_.heads) * task_.query_stride +
                          query % task_.heads * task_.head_stride;
      Factor* to = rounded_queries_ + query * head_dim_;
      for (int i = 0; i < head_dim_; i += 16) Cache::store(to + i, simd::load(from + i));
    }
  }

  void score(int page, int at) {
    const Item* keys = page_at(page);
    const ptrdiff_t to_values = bytes(keys + layer_.layout().key_items()) - bytes(keys);
    in_groups<simd::kQueries>(queries_, [&](int first, auto count) {
      page_scores<Cache, count()>(keys, first == 0 ? to_values : 0, rounded_queries_ + first * head_dim_, head_dim_,
                                  scores_ + at + first * kSpanPositions);
    });
    const int start = first_position(page);
    const int valid = positions(page);
    const bool seen_by_all = task_.window == 0 && valid == kPage && start + kPage <= std::max(task_.position + 1, task_.seen);
    if (seen_by_all && task_.soft_cap == 0.0f) return;
    for (int query = 0; query < queries_; query++) {
      const int own = task_.position + query / task_.heads;
      const int last = std::min(valid, std::max(own + 1, task_.seen) - start);
      const int first = task_.window > 0 ? std::max(0, own + 1 - task_.window - start) : 0;
      if (task_.soft_cap == 0.0f && first == 0 && last == kPage) continue;
      float* row = scores_ + at + query * kSpanPositions;
      Floats x = simd::load(row);
      if (task_.soft_cap != 0.0f) x = soft_cap(x, task_.soft_cap);
      simd::store(row, simd::keep_lanes(x, first, std::max(first, last), simd::splat(kNothing)));
    }
  }

  // Scores to weights, relative to the span's largest score. The values are 0 so far.
  void weigh(int query, int from, int to) {
    const float* row = scores_ + query * kSpanPositions;
    Factor* weights = weights_ + query * kSpanPositions;
    Floats most = simd::splat(kLeast);
    for (int i = from; i < to; i += kPage) most = simd::max(most, simd::load(row + i));
    const float largest = simd::maximum(most);
    most = simd::splat(largest);
    Floats sum = simd::zero();
    for (int i = from; i < to; i += kPage)
      sum = simd::add(sum, Cache::store(weights + i, exponential(simd::sub(simd::load(row + i), most))));
    float* out = out_ + static_cast<size_t>(query) * stride_;
    std::fill(out, out + value_dim_, 0.0f);
    out[value_dim_] = simd::sum(sum);
    out[value_dim_ + 1] = largest;
  }

  void add_values(int page, int at) {
    const Item* values = page_at(page) + layer_.layout().key_items();
    const ptrdiff_t to_keys = bytes(page_behind(page)) - bytes(values);
    const int valid = positions(page);
    in_groups<simd::kValueQueries>(queries_, [&](int first, auto count) {
      const Factor* weights = weights_ + at + first * kSpanPositions;
      float* totals = out_ + static_cast<size_t>(first) * stride_;
      const ptrdiff_t ahead = first == 0 ? to_keys : 0;
      int dimension = 0;
      for (; dimension + 16 * simd::kValueVectors <= value_dim_; dimension += 16 * simd::kValueVectors)
        page_values<Cache, count(), simd::kValueVectors>(values + dimension * Cache::kPair, ahead, valid, value_dim_,
                                                         weights, stride_, totals + dimension);
      for (; dimension < value_dim_; dimension += 16)
        page_values<Cache, count(), 1>(values + dimension * Cache::kPair, ahead, valid, value_dim_, weights, stride_,
                                       totals + dimension);
    });
  }

  const KvLayer& layer_;
  const AttentionTask& task_;
  float* out_;
  const int head_dim_;
  const int value_dim_;
  const int stride_;
  const int queries_;
  float* scores_ = nullptr;
  Factor* weights_ = nullptr;
  Factor* rounded_queries_ = nullptr;
  int last_ = 0;        // page of the task
  int next_first_ = 0;  // pages of the next one
  int next_last_ = 0;
};

}  // namespace

int attention_rows(int heads) { return std::max(1, kTaskQueries / heads); }

int attention_spans(const KvLayout& layout, const AttentionTask& task) {
  return (last_page(layout, task) + kSpan - 1) / kSpan - first_page(layout, task) / kSpan;
}

size_t span_floats(int queries, int value_dim) { return static_cast<size_t>(queries) * span_stride(value_dim); }

template <class Cache>
void attend_span(const KvLayer& layer, const AttentionTask& task, int index, AttentionScratch& scratch, float* out) {
  const KvLayout& layout = layer.layout();
  const int first = first_page(layout, task);
  const int last = last_page(layout, task);
  const int origin = (first / kSpan + index) * kSpan;
  Span<Cache>(layer, task, scratch, out).run(std::max(first, origin), std::min(last, origin + kSpan), origin);
}

void join_span(int queries, int value_dim, const float* span, float* total) {
  const int stride = span_stride(value_dim);
  for (int query = 0; query < queries; query++, span += stride, total += stride) {
    const float most = std::max(total[value_dim + 1], span[value_dim + 1]);
    float factors[16] = {total[value_dim + 1] - most, span[value_dim + 1] - most};
    simd::store(factors, exponential(simd::load(factors)));
    for (int i = 0; i < value_dim; i += 16)
      simd::store(total + i, simd::fma(simd::load(total + i), simd::splat(factors[0]),
                                       simd::mul(simd::load(span + i), simd::splat(factors[1]))));
    total[value_dim] = total[value_dim] * factors[0] + span[value_dim] * factors[1];
    total[value_dim + 1] = most;
  }
}

void finish_attention(const AttentionTask& task, int value_dim, const float* total) {
  for (int query = 0; query < task.rows * task.heads; query++, total += span_stride(value_dim)) {
    float sum = total[value_dim];
    if (task.sinks != nullptr)
      sum += simd::maximum(exponential(simd::splat(task.sinks[query % task.heads] - total[value_dim + 1])));
    const Floats share = simd::splat(1.0f / sum);
    float* out = task.out + static_cast<size_t>(query / task.heads) * task.out_stride +
                 static_cast<size_t>(query % task.heads) * task.out_head_stride;
    for (int i = 0; i < value_dim; i += 16) simd::store(out + i, simd::mul(simd::load(total + i), share));
  }
}

template <class Cache>
void attend(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch) {
  const int queries = task.rows * task.heads;
  const int value_dim = layer.layout().value_dim;
  scratch.total.reserve(span_floats(queries, value_dim));
  scratch.partial.reserve(span_floats(queries, value_dim));
  const int spans = attention_spans(layer.layout(), task);
  attend_span<Cache>(layer, task, 0, scratch, scratch.total.data());
  for (int index = 1; index < spans; index++) {
    attend_span<Cache>(layer, task, index, scratch, scratch.partial.data());
    join_span(queries, value_dim, scratch.partial.data(), scratch.total.data());
  }
  finish_attention(task, value_dim, scratch.total.data());
}

template void attend_span<SingleCache>(const KvLayer&, const AttentionTask&, int, AttentionScratch&, float*);
template void attend_span<BfloatCache>(const KvLayer&, const AttentionTask&, int, AttentionScratch&, float*);
template void attend<SingleCache>(const KvLayer&, const AttentionTask&, AttentionScratch&);
template void attend<BfloatCache>(const KvLayer&, const AttentionTask&, AttentionScratch&);

}  // namespace kernels
