// What attends to what in a step, and which thread computes it.
#include <algorithm>

#include "decoder.h"
#include "vector_math.h"

namespace kernels {
namespace {

// Pieces of a thread's share of attention: where each row is of another sequence, and where there are prompts.
constexpr int kAttentionPieces = 2;
constexpr int kPromptPieces = 4;
// Attention is cut into spans where there are fewer runs and kv heads than this for each thread, and this many spans.
constexpr int kItemsPerThread = 4;
constexpr int kFewestSpans = 4;

}  // namespace

void Session::find_runs(const Step& step) {
  const int most = attention_rows(decoder_.heads / decoder_.kv_heads);
  runs_.clear();
  for (int row = 0; row < step.num_rows; row++) {
    const bool follows = !runs_.empty() && runs_.back().rows < most && step.sequences[row] == step.sequences[row - 1] &&
                         step.positions[row] == step.positions[row - 1] + 1 && step.seen_by(row) == step.seen_by(row - 1);
    if (follows) {
      runs_.back().rows++;
    } else {
      runs_.push_back({row, 1});
    }
  }
}

int Session::most_queries() const {
  const int share = decoder_.heads / decoder_.kv_heads;
  return attention_rows(share) * share;
}

void Session::choose_spans(const Step& step) {
  const int items = static_cast<int>(runs_.size()) * decoder_.kv_heads;
  spans_ = 1;
  if (items >= kItemsPerThread * pool_.threads()) return;
  Layer everything{};
  for (int item = 0; item < items; item += decoder_.kv_heads)
    spans_ = std::max(spans_, attention_spans(layout_, attention_task(everything, step, item, nullptr)));
  if (spans_ < (items < pool_.threads() ? kFewestSpans / 2 : kFewestSpans)) spans_ = 1;
  if (spans_ > 1) spanned_.reserve(span_floats(most_queries(), decoder_.head_dim) * items * spans_);
}

// Norms and turns the queries and keys of some kv heads, and writes keys and values to the cache.
template <class Cache>
void Session::write_row(const Layer& layer, const KvLayer& cache, const Step& step, int row, int first_head,
                        int last_head) {
  const int head_dim = decoder_.head_dim;
  const int share = decoder_.heads / decoder_.kv_heads;
  float* queries = projected_.data() + static_cast<size_t>(row) * layer.input_width();
  float* keys = queries + decoder_.heads * decoder_.query_stride();
  const float* values = keys + decoder_.kv_heads * head_dim;
  const size_t angles = (static_cast<size_t>(layer.rope) * step.num_rows + row) * (head_dim / 2);
  const auto turn = [&](float* x, const float* norm) {
    if (norm != nullptr && decoder_.qk_norm == kHeads) rms_norm(x, norm, decoder_.eps, head_dim, x);
    if (layer.rope >= 0)
      rotate(x, cosines_.data() + angles, sines_.data() + angles, decoder_.ropes[layer.rope].rotary);
    if (norm != nullptr && decoder_.qk_norm == kTurnedHeads) rms_norm(x, norm, decoder_.eps, head_dim, x);
  };
  const simd::Floats scale = simd::splat(decoder_.score_scale);
  for (int head = first_head * share; head < last_head * share; head++) {
    float* query = queries + head * decoder_.query_stride();
    turn(query, layer.query_norm);
    for (int i = 0; i < head_dim; i += 16) simd::store(query + i, simd::mul(simd::load(query + i), scale));
  }
  const int position = step.positions[row];
  const int32_t block = step.blocks[step.first_block[step.sequences[row]] + position / layout_.block_size];
  for (int head = first_head; head < last_head; head++) {
    turn(keys + head * head_dim, layer.key_norm);
    cache.write<Cache>(block, position % layout_.block_size, head, keys + head * head_dim, values + head * head_dim);
  }
}

// Item `item` of the runs times the kv heads. next: likewise, or null.
AttentionTask Session::attention_task(const Layer& layer, const Step& step, int item, const AttentionTask* next) {
  const Run& run = runs_[item / decoder_.kv_heads];
  const int head_dim = decoder_.head_dim;
  const int share = decoder_.heads / decoder_.kv_heads;
  const int stride = layer.input_width();
  const int kv_head = item % decoder_.kv_heads;
  AttentionTask task;
  task.queries = projected_.data() + static_cast<size_t>(run.row) * stride + kv_head * share * decoder_.query_stride();
  task.out = attended_.row(run.row) + kv_head * share * head_dim;
  task.query_stride = stride;
  task.head_stride = decoder_.query_stride();
  task.out_stride = attended_.columns;
  task.rows = run.rows;
  task.heads = share;
  task.kv_head = kv_head;
  task.blocks = step.blocks + step.first_block[step.sequences[run.row]];
  task.position = step.positions[run.row];
  task.seen = step.seen_by(run.row);
  task.window = layer.window;
  task.soft_cap = decoder_.score_cap;
  task.sinks = layer.sinks == nullptr ? nullptr : layer.sinks + kv_head * share;
  task.next = next;
  return task;
}

void Session::gate_attended(const AttentionTask& task) {
  const int head_dim = decoder_.head_dim;
  for (int row = 0; row < task.rows; row++)
    for (int head = 0; head < task.heads; head++) {
      const float* gate = task.queries + static_cast<size_t>(row) * task.query_stride + head * task.head_stride + head_dim;
      float* out = task.out + static_cast<size_t>(row) * task.out_stride + head * head_dim;
      for (int i = 0; i < head_dim; i += 16)
        simd::store(out + i, simd::mul(simd::load(out + i), sigmoid(simd::load(gate + i))));
    }
}

void Session::quantise_attended(const AttentionTask& task) {
  if (decoder_.attention_gate != 0) gate_attended(task);
  const int row = static_cast<int>((task.out - attended_.row(0)) / attended_.columns);
  const int column = task.kv_head * task.heads * decoder_.head_dim;
  for (int i = row; i < row + task.rows; i++)
    attended_.quantise(i, column, column + task.heads * decoder_.head_dim);
}

template <class Cache>
void Session::attend_whole(const Layer& layer, const KvLayer& cache, const Step& step, int item,
                           const AttentionTask* next, AttentionScratch& scratch) {
  const AttentionTask task = attention_task(layer, step, item, next);
  attend<Cache>(cache, task, scratch);
  quantise_attended(task);
}

// All runs: a thread's share in one piece, so that it knows what it reads next; or span by span, where runs are few and
// sequences long.
template <class Cache>
void Session::attend_runs(Team& team, const Layer& layer, const KvLayer& cache, const Step& step) {
  const int items = static_cast<int>(runs_.size()) * decoder_.kv_heads;
  AttentionScratch& scratch = *scratches_[team.member()];
  if (lone_) {
    team.share(decoder_.kv_heads, [&](int head) {
      write_row<Cache>(layer, cache, step, 0, head, head + 1);
      attend_whole<Cache>(layer, cache, step, head, nullptr, scratch);
    });
    return;
  }
  if (spans_ == 1) {
    const int each = static_cast<int>(runs_.size()) < step.num_rows ? kPromptPieces : kAttentionPieces;
    const int pieces = std::min(items, team.size() == 1 ? 1 : team.size() * each);
    team.share(pieces, [&](int place) {
      // A prompt's later rows see more than its earlier ones: the longest pieces first.
      const int piece = pieces - 1 - place;
      const int last = items * (piece + 1) / pieces;
      for (int item = items * piece / pieces; item < last; item++) {
        if (item + 1 < last) {
          const AttentionTask next = attention_task(layer, step, item + 1, nullptr);
          attend_whole<Cache>(layer, cache, step, item, &next, scratch);
        } else {
          attend_whole<Cache>(layer, cache, step, item, nullptr, scratch);
        }
      }
    });
    return;
  }
  const size_t stride = span_floats(most_queries(), decoder_.head_dim);
  const auto span_at = [&](int item, int span) {
    return spanned_.data() + (static_cast<size_t>(item) * spans_ + span) * stride;
  };
  team.share(items * spans_, [&](int place) {
    const int item = place / spans_;
    const int span = place % spans_;
    const AttentionTask task = attention_task(layer, step, item, nullptr);
    if (span < attention_spans(layout_, task)) attend_span<Cache>(cache, task, span, scratch, span_at(item, span));
  });
  team.share(items, [&](int item) {
    const AttentionTask task = attention_task(layer, step, item, nullptr);
    for (int span = 1; span < attention_spans(layout_, task); span++)
      join_span(task.rows * task.heads, decoder_.head_dim, span_at(item, span), span_at(item, 0));
    finish_attention(task, decoder_.head_dim, span_at(item, 0));
    quantise_attended(task);
  });
}

template void Session::write_row<SingleCache>(const Layer&, const KvLayer&, const Step&, int, int, int);
template void Session::attend_runs<SingleCache>(Team&, const Layer&, const KvLayer&, const Step&);
template void Session::write_row<BfloatCache>(const Layer&, const KvLayer&, const Step&, int, int, int);
template void Session::attend_runs<BfloatCache>(Team&, const Layer&, const KvLayer&, const Step&);

}  // namespace kernels
