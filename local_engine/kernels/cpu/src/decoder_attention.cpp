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
  head_groups_ = decoder_.kv_heads;
  while (decoder_.is_latent() && static_cast<int>(runs_.size()) * head_groups_ < pool_.threads() &&
         decoder_.heads % (2 * head_groups_) == 0)
    head_groups_ *= 2;
}

int Session::most_queries() const {
  const int share = decoder_.heads / decoder_.kv_heads;
  return attention_rows(share) * share;
}

void Session::choose_spans(const Step& step) {
  const int items = static_cast<int>(runs_.size()) * head_groups_;
  spans_ = 1;
  if (items >= kItemsPerThread * pool_.threads()) return;
  Layer everything{};
  for (int item = 0; item < items; item += head_groups_)
    spans_ = std::max(spans_, attention_spans(layout_, attention_task(everything, step, item, nullptr)));
  if (spans_ < (items < pool_.threads() ? kFewestSpans / 2 : kFewestSpans)) spans_ = 1;
  if (spans_ > 1) spanned_.reserve(span_floats(most_queries(), decoder_.value_dim) * items * spans_);
}

// Where a row's queries lie, and how far it is from row to row.
float* Session::queries_of(const Layer& layer, int row) {
  Buffer<float>& queries = layer.latent == nullptr ? projected_ : latent_queries_;
  return queries.data() + static_cast<size_t>(row) * query_width(layer);
}

int Session::query_width(const Layer& layer) const {
  return layer.latent == nullptr ? layer.input_width() : decoder_.heads * decoder_.head_dim;
}

// Norms and turns the queries and keys of some kv heads, and writes keys and values to the cache.
template <class Cache>
void Session::write_row(const Layer& layer, const KvLayer& cache, const Step& step, int row, int first_head,
                        int last_head) {
  const int head_dim = decoder_.head_dim;
  const int share = decoder_.heads / decoder_.kv_heads;
  float* queries = queries_of(layer, row);
  float* keys = queries + decoder_.heads * decoder_.query_stride();
  const float* values = keys + decoder_.kv_heads * head_dim;
  const size_t angles = first_angle(layer, step, row);
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
  const int32_t block = step.block_of(row, layout_.block_size);
  const int offset = step.positions[row] % layout_.block_size;
  for (int head = first_head; head < last_head; head++) {
    turn(keys + head * head_dim, layer.key_norm);
    cache.write<Cache>(block, offset, head, keys + head * head_dim, values + head * head_dim);
  }
}

// Item `item` of the runs times the groups of heads. next: likewise, or null.
AttentionTask Session::attention_task(const Layer& layer, const Step& step, int item, const AttentionTask* next) {
  const Run& run = runs_[item / head_groups_];
  const int share = decoder_.heads / head_groups_;
  const int head = item % head_groups_ * share;
  AttentionTask task;
  task.queries = queries_of(layer, run.row) + head * decoder_.query_stride();
  task.query_stride = query_width(layer);
  task.head_stride = decoder_.query_stride();
  task.out_stride = attended_.columns;
  task.out_head_stride = decoder_.is_latent() ? step.num_rows * attended_.columns : decoder_.value_dim;
  task.out = attended_.row(run.row) + static_cast<size_t>(head) * task.out_head_stride;
  task.rows = run.rows;
  task.heads = share;
  task.kv_head = head / (decoder_.heads / decoder_.kv_heads);
  task.blocks = step.blocks + step.first_block[step.sequences[run.row]];
  task.position = step.positions[run.row];
  task.seen = step.seen_by(run.row);
  task.window = layer.window;
  task.soft_cap = decoder_.score_cap;
  task.sinks = layer.sinks == nullptr ? nullptr : layer.sinks + head;
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
  // What heads find in one row follows one another, or not.
  const int parts = task.out_head_stride == decoder_.value_dim ? 1 : task.heads;
  const int width = task.heads / parts * decoder_.value_dim;
  for (int row = 0; row < task.rows; row++)
    for (int part = 0; part < parts; part++) {
      const int at = static_cast<int>(task.out - attended_.row(0)) + row * task.out_stride + part * task.out_head_stride;
      attended_.quantise(0, at, at + width);
    }
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
  const int items = static_cast<int>(runs_.size()) * head_groups_;
  AttentionScratch& scratch = *scratches_[team.member()];
  if (lone_) {
    team.share(head_groups_, [&](int group) {
      if (layer.latent == nullptr) write_row<Cache>(layer, cache, step, 0, group, group + 1);
      attend_whole<Cache>(layer, cache, step, group, nullptr, scratch);
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
  const size_t stride = span_floats(most_queries(), decoder_.value_dim);
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
      join_span(task.rows * task.heads, decoder_.value_dim, span_at(item, span), span_at(item, 0));
    finish_attention(task, decoder_.value_dim, span_at(item, 0));
    quantise_attended(task);
  });
}

template void Session::write_row<SingleCache>(const Layer&, const KvLayer&, const Step&, int, int, int);
template void Session::attend_runs<SingleCache>(Team&, const Layer&, const KvLayer&, const Step&);
template void Session::write_row<BfloatCache>(const Layer&, const KvLayer&, const Step&, int, int, int);
template void Session::attend_runs<BfloatCache>(Team&, const Layer&, const KvLayer&, const Step&);

}  // namespace kernels
