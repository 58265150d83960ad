#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "multiply.h"
#include "pack.h"
#include "pieces.h"
#include "vector_math.h"

namespace kernels {
namespace {

constexpr int kStagesPerLayer = 17;
constexpr int kStagesOfExperts = 6;
constexpr int kStagesOfLatents = 6;
// Keys and values are read in pieces from all over the pool: small pages cost 6% of a step of 16 streams (AMD EPYC Zen 4,
// 2026-11).
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSmallPage = 4 << 10;
// Of the pool, what is got from the system when it is opened, and how far ahead of its use while nothing else is done. To
// get 2 MB takes 0.2 ms, and 5 ms where a virtual machine has to ask its host for them (2026-11).
constexpr size_t kTouchedFirst = 16 << 20;
constexpr size_t kTouchedAhead = 128 << 20;

// Some product of a layer reads the floats of normed or gated rows, beside the router that always does.
bool reads_floats(const Decoder& decoder) {
  return std::any_of(decoder.layers, decoder.layers + decoder.num_layers, [&](const Layer& layer) {
    const auto dense = [](const Matrix& matrix) { return is_dense(matrix.format); };
    if (std::any_of(std::begin(layer.inputs), std::end(layer.inputs), dense) || dense(layer.gate) || dense(layer.up) ||
        dense(layer.down))
      return true;
    if (layer.experts == nullptr) return false;
    const Matrix* stacks[] = {layer.experts->gate, layer.experts->up, layer.experts->down};
    return std::any_of(std::begin(stacks), std::end(stacks), [&](const Matrix* stack) {
      return std::any_of(stack, stack + decoder.routing.count, dense);
    });
  });
}

int stages_of(const Decoder& decoder) {
  return (decoder.num_layers + 1) * (kStagesPerLayer + (decoder.routing.count > 0 ? kStagesOfExperts : 0) +
                                     (decoder.is_latent() ? kStagesOfLatents : 0));
}

}  // namespace

void Session::Free::operator()(uint8_t* memory) const { std::free(memory); }

Session::Session(const Decoder& decoder, int block_size, int num_blocks, int cache_bytes, int threads)
    : decoder_(decoder),
      layout_(decoder.kv_layout(block_size, cache_bytes)),
      pool_(threads, stages_of(decoder)),
      reads_floats_(reads_floats(decoder)),
      projected_width_(decoder.hidden) {
  // Not cleared: but for a little ahead, memory that no sequence has written is not even resident.
  pool_bytes_ = (layout_.block_bytes() * num_blocks + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, pool_bytes_)));
  if (memory_ == nullptr) throw std::bad_alloc();
#if defined(__linux__)
  madvise(memory_.get(), pool_bytes_, MADV_HUGEPAGE);
#endif
  touch(std::min(pool_bytes_, kTouchedFirst));
  size_t begin = 0;
  for (int index = 0; index < decoder.num_layers; index++) {
    const Layer& layer = decoder.layers[index];
    caches_.emplace_back(layout_, memory_.get() + begin);
    projected_width_ = std::max(projected_width_, layer.input_width());
    if (layer.latent != nullptr) projected_width_ = std::max(projected_width_, layer.latent->queries.tiles() * kTile);
    if (layer.recurrent == nullptr) begin += layout_.layer_bytes();
    if (layer.recurrent != nullptr || layer.latent != nullptr) mixed_width_ = layer.output.columns;
  }
  for (int thread = 0; thread < threads; thread++) scratches_.push_back(std::make_unique<AttentionScratch>());
}

// Each piece by one thread: two that meet in a page which is not there yet would both get and clear one.
void Session::touch(size_t end) {
  if (end <= touched_) return;
  const size_t begin = touched_;
  const int pieces = static_cast<int>((end - begin + kHugePage - 1) / kHugePage);
  pool_.run([&](Team& team) { team.share(pieces, [&](int piece) { touch_piece(begin + piece * kHugePage); }); });
  touched_ = begin + pieces * kHugePage;
}

// Pages of whatever size the system gives.
void Session::touch_piece(size_t begin) {
  volatile uint8_t* memory = memory_.get() + begin;
  for (size_t at = 0; at < kHugePage; at += kSmallPage) memory[at] = 0;
}

bool Session::touch_ahead() {
  const size_t end = std::min(pool_bytes_, used_ + kTouchedAhead);
  if (touched_ >= end) return false;
  touch_piece(touched_);
  touched_ += kHugePage;
  return touched_ < end;
}

void Session::forward(const Step& step, float* hidden) {
  int32_t last = 0;
  for (int row = 0; row < step.num_rows; row++)
    last = std::max(last, step.block_of(row, layout_.block_size));
  used_ = std::max(used_, end_of(last));
  touch(used_);
  if (step.states != nullptr) sources_.assign(step.sources, step.sources + step.sequences[step.num_rows - 1] + 1);
  // Later rows of a sequence find the keys of earlier ones in the cache, so parts of a step follow one another.
  for (int row = 0, rows = 0; row < step.num_rows; row += rows) {
    rows = part_rows(step, row);
    Step part = step;
    part.num_rows = rows;
    part.tokens += row;
    part.positions += row;
    part.sequences += row;
    if (part.adapters != nullptr) part.adapters += row;
    if (part.wanted != nullptr) part.wanted += row;
    if (part.seen != nullptr) part.seen += row;
    if (part.axis_positions != nullptr) part.axis_positions += 3 * row;
    if (part.stacked != nullptr) part.stacked += static_cast<size_t>(row) * decoder_.stacked_layers * decoder_.hidden;
    forward_part(part, hidden + static_cast<size_t>(row) * decoder_.hidden);
  }
}

void Session::forward_part(const Step& step, float* hidden) {
  const int rows = step.num_rows;
  normed_.columns = decoder_.hidden;
  attended_.columns = decoder_.heads * decoder_.value_dim;
  gated_.columns = decoder_.intermediate;
  mixed_.columns = mixed_width_;
  keeps_floats_ = reads_floats_ || step.adapters != nullptr;
  keeps_normed_ = keeps_floats_ || decoder_.routing.count > 0;
  normed_.reserve(rows, normed_.columns, std::max(keeps_normed_ ? rows : 0, pool_.threads()));
  attended_.reserve(rows, attended_.columns, rows);
  mixed_.reserve(rows, mixed_.columns, rows);
  gated_.reserve(rows, gated_.columns, keeps_floats_ ? rows : 0);
  if (decoder_.routing.count > 0) reserve_experts(rows);
  if (decoder_.is_latent()) reserve_heads(rows);
  projected_.reserve(static_cast<size_t>(rows) * projected_width_);
  if (step.adapters != nullptr)
    additions_.reserve(static_cast<size_t>(rows) * 2 * std::max(decoder_.intermediate, decoder_.shared));
  prepare_rotations(step);
  if (layout_.item_bytes == 4) {
    run_step<SingleCache>(step, hidden);
  } else {
    run_step<BfloatCache>(step, hidden);
  }
}

// Of rows whose states nobody asks for, the last layer computes keys and values only.
template <class Cache>
void Session::run_step(const Step& step, float* hidden) {
  const int last = decoder_.num_layers - 1;
  const int wanted = find_wanted(step);
  const bool all = wanted == step.num_rows;
  find_runs(step);
  find_state_runs(step);
  choose_spans(step);
  lone_ = all && step.num_rows == 1 && spans_ == 1;
  pool_.run([&](Team& team) {
    embed(team, step, hidden);
    for (int index = 0; index < last; index++) {
      begin_layer<Cache>(team, step, index, hidden);
      finish_layer<Cache>(team, step, index, hidden);
      add_stacked(team, step, index, hidden);
    }
    begin_layer<Cache>(team, step, last, hidden);
    if (all) finish_layer<Cache>(team, step, last, hidden);
  });
  if (all || wanted == 0) return;
  const Step rest = only_wanted(step, hidden);
  find_runs(rest);
  choose_spans(rest);
  lone_ = false;
  pool_.run([&](Team& team) {
    if (decoder_.parallel != 0)
      normalise(team, rest.num_rows, hidden, nullptr, decoder_.layers[last].attention_norm, true);
    finish_layer<Cache>(team, rest, last, hidden);
  });
  for (int row = wanted - 1; row >= 0; row--)
    std::memmove(hidden + static_cast<size_t>(wanted_[row]) * decoder_.hidden,
                 hidden + static_cast<size_t>(row) * decoder_.hidden, decoder_.hidden * sizeof(float));
}

// Of those, where a row's are, as a layer turns it.
size_t Session::first_angle(const Layer& layer, const Step& step, int row) const {
  return (static_cast<size_t>(layer.rope) * step.num_rows + row) * (decoder_.head_dim / 2);
}

// Cosines and sines [ropes][rows][head_dim / 2], of angles in float32.
void Session::prepare_rotations(const Step& step) {
  const int half = decoder_.head_dim / 2;
  const size_t items = static_cast<size_t>(decoder_.num_ropes) * step.num_rows * half;
  cosines_.reserve(items);
  sines_.reserve(items);
  size_t at = 0;
  for (int index = 0; index < decoder_.num_ropes; index++) {
    const Rope& rope = decoder_.ropes[index];
    const bool has_axes = rope.axes != nullptr && step.axis_positions != nullptr;
    for (int row = 0; row < step.num_rows; row++, at += half)
      for (int i = 0; i < rope.rotary / 2; i++) {
        const int32_t position = has_axes ? step.axis_positions[3 * row + rope.axes[i]] : step.positions[row];
        const float angle = static_cast<float>(position) * rope.frequencies[i];
        cosines_.data()[at + i] = std::cos(angle) * rope.length;
        sines_.data()[at + i] = std::sin(angle) * rope.length;
      }
  }
}

void Session::embed(Team& team, const Step& step, float* hidden) {
  team.share(step.num_rows, [&](int row) {
    if (step.tokens[row] < 0) return;
    float* out = hidden + static_cast<size_t>(row) * decoder_.hidden;
    unpack_row(decoder_.embedding, step.tokens[row], out);
    if (decoder_.embedding_scale != 1.0f)
      for (int i = 0; i < decoder_.hidden; i++) out[i] *= decoder_.embedding_scale;
  });
}

// To the residual behind a layer.
void Session::add_stacked(Team& team, const Step& step, int index, float* hidden) {
  if (step.stacked == nullptr || index >= decoder_.stacked_layers) return;
  const size_t width = decoder_.hidden;
  team.share(step.num_rows, [&](int row) {
    add_to(hidden + row * width, step.stacked + (static_cast<size_t>(row) * decoder_.stacked_layers + index) * width,
           decoder_.hidden);
  });
}

// A layer's beginning: queries, and keys and values in the cache, or all that a state is good for. First, what the layer
// before has left to be added.
template <class Cache>
void Session::begin_layer(Team& team, const Step& step, int index, float* hidden) {
  const Layer& layer = decoder_.layers[index];
  normalise(team, step.num_rows, hidden, index == 0 ? nullptr : decoder_.layers[index - 1].post_mlp_norm,
            layer.attention_norm, true);
  const int width = layer.input_width();
  project(team, step.num_rows, layer.inputs, width / kTile, normed_, projected_.data(), width);
  adapt(team, step, index, &AdaptedLayer::qkv, normed_, projected_.data(), width);
  if (layer.recurrent != nullptr) {
    recur(team, step, index);
  } else if (layer.latent != nullptr) {
    write_latents<Cache>(team, step, index);
    make_queries(team, step, index);
  } else {
    write_keys<Cache>(team, step, index);
  }
}

template <class Cache>
void Session::write_keys(Team& team, const Step& step, int index) {
  const int rows = step.num_rows;
  const Layer& layer = decoder_.layers[index];
  if (decoder_.qk_norm == kRow && layer.query_norm != nullptr) {
    const int queries = decoder_.heads * decoder_.head_dim;
    team.share(rows, [&](int row) {
      float* x = projected_.data() + static_cast<size_t>(row) * layer.input_width();
      rms_norm(x, layer.query_norm, decoder_.eps, queries, x);
      rms_norm(x + queries, layer.key_norm, decoder_.eps, decoder_.kv_heads * decoder_.head_dim, x + queries);
    });
  }
  if (lone_) return;
  team.share(rows, [&](int row) { write_row<Cache>(layer, caches_[index], step, row, 0, decoder_.kv_heads); });
}

template <class Cache>
void Session::finish_layer(Team& team, const Step& step, int index, float* hidden) {
  const int rows = step.num_rows;
  const Layer& layer = decoder_.layers[index];
  if (layer.recurrent == nullptr) attend_runs<Cache>(team, layer, caches_[index], step);
  if (layer.latent != nullptr) make_values(team, rows, *layer.latent);
  const Activations& mixed = layer.recurrent == nullptr && layer.latent == nullptr ? attended_ : mixed_;
  float* attention_out = layer.post_attention_norm == nullptr ? hidden : projected_.data();
  project_back(team, rows, layer.output, mixed, attention_out, attention_out == hidden);
  adapt(team, step, index, &AdaptedLayer::output, mixed, attention_out, decoder_.hidden);
  normalise(team, rows, hidden, layer.post_attention_norm, layer.mlp_norm, decoder_.parallel == 0);
  if (layer.experts == nullptr) {
    float* mlp_out = layer.post_mlp_norm == nullptr ? hidden : projected_.data();
    feed_forward(team, step, index, nullptr, mlp_out, mlp_out == hidden);
  } else {
    route(team, rows, *layer.experts);
    const float* factors = layer.experts->shared_gate == nullptr ? nullptr : shared_factors_.data();
    if (layer.gate.rows > 0) feed_forward(team, step, index, factors, hidden, true);
    add_experts(team, rows, *layer.experts, hidden);
  }
  if (index == decoder_.num_layers - 1 && layer.post_mlp_norm != nullptr)
    normalise(team, rows, hidden, layer.post_mlp_norm, nullptr, false);
}

void Session::norm_row(const float* x, const float* weight, float* out) const {
  if (decoder_.centred != 0) {
    layer_norm(x, weight, decoder_.eps, decoder_.hidden, out);
  } else {
    rms_norm(x, weight, decoder_.eps, decoder_.hidden, out);
  }
}

// Adds the normed projection to the residual where it has a norm of its own, then norms the residual for the next matrix,
// where that reads it.
void Session::normalise(Team& team, int rows, float* hidden, const float* addition_norm, const float* norm,
                        bool reads) {
  if (addition_norm == nullptr && !reads) return;
  const int width = decoder_.hidden;
  team.share(rows, [&](int row) {
    float* state = hidden + static_cast<size_t>(row) * width;
    if (addition_norm != nullptr) {
      float* addition = projected_.data() + static_cast<size_t>(row) * width;
      norm_row(addition, addition_norm, addition);
      add_to(state, addition, width);
    }
    if (reads) {
      float* normed = normed_.row(keeps_normed_ ? row : team.member());
      if (norm != nullptr) {
        norm_row(state, norm, normed);
      } else {
        std::memcpy(normed, state, width * sizeof(float));
      }
      normed_.quantise(normed, row, 0, width);
    }
  });
}

// Matrices over the rows of `x`, `tiles` in all, side by side.
void Session::project(Team& team, int rows, const Matrix* parts, int tiles, const Activations& x, float* out,
                      int stride) {
  share_blocks(team, tiles, bytes_of_tile(parts[0]), rows, [&](int first, int last, int begin, int block) {
    float results[kRowBlock * kTile];
    for (int tile = first; tile < last; tile++) {
      int part = 0;
      int within = tile;
      for (; within >= parts[part].tiles(); part++) within -= parts[part].tiles();
      multiply(parts[part], within, x, begin, block, results);
      for (int row = 0; row < block; row++)
        std::memcpy(out + static_cast<size_t>(begin + row) * stride + tile * kTile, results + row * kTile,
                    kTile * sizeof(float));
    }
  });
}

// A matrix back to the residual's width: added to it, or kept for a norm of its own.
void Session::project_back(Team& team, int rows, const Matrix& matrix, const Activations& x, float* out, bool add) {
  const int width = decoder_.hidden;
  share_blocks(team, matrix.tiles(), bytes_of_tile(matrix), rows, [&](int first, int last, int begin, int block) {
    float results[kRowBlock * kTile];
    for (int tile = first; tile < last; tile++) {
      multiply(matrix, tile, x, begin, block, results);
      for (int row = 0; row < block; row++) {
        const size_t at = static_cast<size_t>(begin + row) * width + tile * kTile;
        const simd::Floats result = simd::load(results + row * kTile);
        simd::store(out + at, add ? simd::add(simd::load(out + at), result) : result);
      }
    }
  });
}

// Adds what the rows' adapters say to a product of `width` columns.
void Session::adapt(Team& team, const Step& step, int index, LowRank AdaptedLayer::*site, const Activations& x,
                    float* out, int width) {
  if (step.adapters == nullptr) return;
  team.share(step.num_rows, [&](int row) {
    if (step.adapters[row] == nullptr) return;
    const LowRank& low_rank = step.adapters[row][index].*site;
    for (int rank = 0; rank < low_rank.rank; rank++) {
      const float* down = low_rank.down + static_cast<size_t>(rank) * x.columns;
      const float* up = low_rank.up + static_cast<size_t>(rank) * width;
      add_scaled(up, dot(down, x.row(row), x.columns), width, out + static_cast<size_t>(row) * width);
    }
  });
}

void Session::copy_blocks(const int32_t* pairs, int count) {
  const size_t bytes = layout_.layer_bytes();
  copied_.reserve(bytes * count);
  for (int i = 0; i < count; i++) used_ = std::max(used_, end_of(pairs[2 * i + 1]));
  touch(used_);
  for (int layer = 0; layer < decoder_.num_layers; layer++) {
    if (decoder_.layers[layer].recurrent != nullptr) continue;
    const KvLayer& cache = caches_[layer];
    for (int i = 0; i < count; i++) std::memcpy(copied_.data() + i * bytes, cache.part_of(pairs[2 * i]), bytes);
    for (int i = 0; i < count; i++) std::memcpy(cache.part_of(pairs[2 * i + 1]), copied_.data() + i * bytes, bytes);
  }
}

}  // namespace kernels
