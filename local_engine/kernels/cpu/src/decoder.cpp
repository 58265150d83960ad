#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "multiply.h"
#include "pack.h"
#include "vector_math.h"

namespace kernels {
namespace {

// Rows that go through the layers together: bounds the memory of a step.
constexpr int kMostRows = 512;
// Rows of activations that are multiplied before the next tile: they and the tile stay in the first caches.
constexpr int kRowBlock = 64;
constexpr int kStagesPerLayer = 12;
// A matrix is cut into as many pieces as there are threads, or that number several times: so that one who comes late leaves
// its part to the others, and yet a piece is long enough to stream from memory.
constexpr int kMostPieces = 8;
constexpr size_t kPieceBytes = 128 << 10;
// Rows that cost as much as reading the weights does.
constexpr int kReadingRows = 4;

// Cuts `count` items of `bytes` of weights each into pieces; runs function(first, last) over them.
template <class Function>
void share_pieces(Team& team, int count, size_t bytes, int rows, Function&& function) {
  const size_t work = bytes * count * (1 + rows / kReadingRows) / (team.size() * kPieceBytes);
  const int each = static_cast<int>(std::min<size_t>(std::max<size_t>(work, 1), kMostPieces));
  const int pieces = std::min(count, team.size() == 1 ? 1 : team.size() * each);
  team.share(pieces, [&](int piece) {
    function(static_cast<int>(static_cast<int64_t>(count) * piece / pieces),
             static_cast<int>(static_cast<int64_t>(count) * (piece + 1) / pieces));
  });
}

size_t bytes_of_tile(const Matrix& matrix) { return tile_bytes(matrix.format, matrix.columns); }

}  // namespace

void Session::Free::operator()(uint8_t* memory) const { std::free(memory); }

Session::Session(const Decoder& decoder, int block_size, int num_blocks, int cache_bytes, int threads)
    : decoder_(decoder),
      layout_{block_size, decoder.kv_heads, decoder.head_dim, cache_bytes},
      pool_(threads, decoder.num_layers * kStagesPerLayer + kStagesPerLayer) {
  // Not cleared: memory that no sequence has written is not even resident.
  const size_t layer_bytes = layout_.block_bytes() * static_cast<size_t>(num_blocks);
  const size_t bytes = (layer_bytes * decoder.num_layers + 63) / 64 * 64;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
  if (memory_ == nullptr) throw std::bad_alloc();
  for (int layer = 0; layer < decoder.num_layers; layer++) caches_.emplace_back(layout_, memory_.get() + layer * layer_bytes);
  for (int thread = 0; thread < threads; thread++) scratches_.push_back(std::make_unique<AttentionScratch>());
}

void Session::forward(const Step& step, float* hidden) {
  // Later rows of a sequence find the keys of earlier ones in the cache, so parts of a step follow one another.
  for (int row = 0; row < step.num_rows; row += kMostRows) {
    Step part = step;
    part.num_rows = std::min(kMostRows, step.num_rows - row);
    part.tokens += row;
    part.positions += row;
    part.sequences += row;
    if (part.adapters != nullptr) part.adapters += row;
    forward_part(part, hidden + static_cast<size_t>(row) * decoder_.hidden);
  }
}

void Session::forward_part(const Step& step, float* hidden) {
  const int rows = step.num_rows;
  normed_.columns = decoder_.hidden;
  attended_.columns = decoder_.heads * decoder_.head_dim;
  gated_.columns = decoder_.intermediate;
  for (Activations* activations : {&normed_, &attended_, &gated_}) activations->reserve(rows, activations->columns);
  const int projections = (decoder_.heads + 2 * decoder_.kv_heads) * decoder_.head_dim;
  projected_.reserve(static_cast<size_t>(rows) * std::max(projections, decoder_.hidden));
  if (step.adapters != nullptr) additions_.reserve(static_cast<size_t>(rows) * 2 * decoder_.intermediate);
  prepare_rotations(step);
  find_runs(step);
  pool_.run([&](Team& team) {
    if (layout_.item_bytes == 4) {
      run_layers<SingleCache>(team, step, hidden);
    } else {
      run_layers<BfloatCache>(team, step, hidden);
    }
  });
}

// Cosines and sines [ropes][rows][head_dim / 2], of angles in float32.
void Session::prepare_rotations(const Step& step) {
  const int half = decoder_.head_dim / 2;
  const size_t items = static_cast<size_t>(decoder_.num_ropes) * step.num_rows * half;
  cosines_.reserve(items);
  sines_.reserve(items);
  size_t at = 0;
  for (int rope = 0; rope < decoder_.num_ropes; rope++)
    for (int row = 0; row < step.num_rows; row++, at += half)
      for (int i = 0; i < decoder_.ropes[rope].rotary / 2; i++) {
        const float angle = static_cast<float>(step.positions[row]) * decoder_.ropes[rope].frequencies[i];
        cosines_.data()[at + i] = std::cos(angle) * decoder_.ropes[rope].length;
        sines_.data()[at + i] = std::sin(angle) * decoder_.ropes[rope].length;
      }
}

void Session::find_runs(const Step& step) {
  const int most = attention_rows(decoder_.heads / decoder_.kv_heads);
  runs_.clear();
  for (int row = 0; row < step.num_rows; row++) {
    const bool follows = !runs_.empty() && runs_.back().rows < most && step.sequences[row] == step.sequences[row - 1];
    if (follows) {
      runs_.back().rows++;
    } else {
      runs_.push_back({row, 1});
    }
  }
}

template <class Cache>
void Session::run_layers(Team& team, const Step& step, float* hidden) {
  const int rows = step.num_rows;
  const int kv_heads = decoder_.kv_heads;
  const int projections = (decoder_.heads + 2 * kv_heads) * decoder_.head_dim;
  AttentionScratch& scratch = *scratches_[team.member()];
  team.share(rows, [&](int row) {
    float* out = hidden + static_cast<size_t>(row) * decoder_.hidden;
    unpack_row(decoder_.embedding, step.tokens[row], out);
    if (decoder_.embedding_scale != 1.0f)
      for (int i = 0; i < decoder_.hidden; i++) out[i] *= decoder_.embedding_scale;
  });
  const float* addition_norm = nullptr;
  for (int index = 0; index < decoder_.num_layers; index++) {
    const Layer& layer = decoder_.layers[index];
    const KvLayer& cache = caches_[index];
    normalise(team, rows, hidden, addition_norm, layer.attention_norm);
    const Matrix* parts[] = {&layer.query, &layer.key, &layer.value};
    project(team, rows, parts, 3, projected_.data(), projections);
    adapt(team, step, index, &AdaptedLayer::qkv, normed_, projected_.data(), projections);
    if (rows == 1) {
      team.share(kv_heads, [&](int head) {
        write_row<Cache>(layer, cache, step, 0, head, head + 1);
        attend_run<Cache>(layer, cache, step, 0, 1, head, scratch);
      });
    } else {
      team.share(rows, [&](int row) { write_row<Cache>(layer, cache, step, row, 0, kv_heads); });
      team.share(static_cast<int>(runs_.size()) * kv_heads, [&](int item) {
        const Run& run = runs_[item / kv_heads];
        attend_run<Cache>(layer, cache, step, run.row, run.rows, item % kv_heads, scratch);
      });
    }
    float* attention_out = layer.post_attention_norm == nullptr ? hidden : projected_.data();
    project_back(team, rows, layer.output, attended_, attention_out, attention_out == hidden);
    adapt(team, step, index, &AdaptedLayer::output, attended_, attention_out, decoder_.hidden);
    normalise(team, rows, hidden, layer.post_attention_norm, layer.mlp_norm);
    gate(team, step, index);
    float* mlp_out = layer.post_mlp_norm == nullptr ? hidden : projected_.data();
    project_back(team, rows, layer.down, gated_, mlp_out, mlp_out == hidden);
    adapt(team, step, index, &AdaptedLayer::down, gated_, mlp_out, decoder_.hidden);
    addition_norm = layer.post_mlp_norm;
  }
  if (addition_norm != nullptr) normalise(team, rows, hidden, addition_norm, nullptr);
}

// Adds the normed projection to the residual where it has a norm of its own, then norms the residual for the next matrix.
void Session::normalise(Team& team, int rows, float* hidden, const float* addition_norm, const float* norm) {
  const int width = decoder_.hidden;
  team.share(rows, [&](int row) {
    float* state = hidden + static_cast<size_t>(row) * width;
    if (addition_norm != nullptr) {
      float* addition = projected_.data() + static_cast<size_t>(row) * width;
      rms_norm(addition, addition_norm, decoder_.eps, width, addition);
      add_to(state, addition, width);
    }
    if (norm != nullptr) {
      rms_norm(state, norm, decoder_.eps, width, normed_.row(row));
      normed_.quantise(row, 0, width);
    }
  });
}

// Several matrices over the normed rows, their outputs side by side.
void Session::project(Team& team, int rows, const Matrix* const* parts, int count, float* out, int stride) {
  int tiles = 0;
  for (int part = 0; part < count; part++) tiles += parts[part]->tiles();
  share_pieces(team, tiles, bytes_of_tile(*parts[0]), rows, [&](int first, int last) {
    float results[kRowBlock * kTile];
    for (int begin = 0; begin < rows; begin += kRowBlock) {
      const int block = std::min(kRowBlock, rows - begin);
      for (int tile = first; tile < last; tile++) {
        int part = 0;
        int within = tile;
        for (; within >= parts[part]->tiles(); part++) within -= parts[part]->tiles();
        multiply(*parts[part], within, normed_, begin, block, results);
        for (int row = 0; row < block; row++)
          std::memcpy(out + static_cast<size_t>(begin + row) * stride + tile * kTile, results + row * kTile,
                      kTile * sizeof(float));
      }
    }
  });
}

// A matrix back to the residual's width: added to it, or kept for a norm of its own.
void Session::project_back(Team& team, int rows, const Matrix& matrix, const Activations& x, float* out, bool add) {
  const int width = decoder_.hidden;
  share_pieces(team, matrix.tiles(), bytes_of_tile(matrix), rows, [&](int first, int last) {
    float results[kRowBlock * kTile];
    for (int begin = 0; begin < rows; begin += kRowBlock) {
      const int block = std::min(kRowBlock, rows - begin);
      for (int tile = first; tile < last; tile++) {
        multiply(matrix, tile, x, begin, block, results);
        for (int row = 0; row < block; row++) {
          const size_t at = static_cast<size_t>(begin + row) * width + tile * kTile;
          const simd::Floats result = simd::load(results + row * kTile);
          simd::store(out + at, add ? simd::add(simd::load(out + at), result) : result);
        }
      }
    }
  });
}

// Gate and up, two tiles of each at a time: 32 columns, which are then quantised.
void Session::gate(Team& team, const Step& step, int index) {
  const Layer& layer = decoder_.layers[index];
  const int rows = step.num_rows;
  const int width = decoder_.intermediate;
  if (step.adapters != nullptr) {
    team.share(rows, [&](int row) {
      float* addition = additions_.data() + static_cast<size_t>(row) * 2 * width;
      std::fill(addition, addition + 2 * width, 0.0f);
    });
    adapt(team, step, index, &AdaptedLayer::gate_up, normed_, additions_.data(), 2 * width);
  }
  share_pieces(team, decoder_.intermediate / kGroup, 4 * bytes_of_tile(layer.gate), rows, [&](int first, int last) {
    float gates[kRowBlock * kTile];
    float ups[kRowBlock * kTile];
    for (int begin = 0; begin < rows; begin += kRowBlock) {
      const int block = std::min(kRowBlock, rows - begin);
      for (int group = first; group < last; group++) {
        for (int tile = 2 * group; tile < 2 * group + 2; tile++) {
          multiply(layer.gate, tile, normed_, begin, block, gates);
          multiply(layer.up, tile, normed_, begin, block, ups);
          for (int row = 0; row < block; row++) {
            simd::Floats gate = simd::load(gates + row * kTile);
            simd::Floats up = simd::load(ups + row * kTile);
            if (step.adapters != nullptr) {
              const float* addition = additions_.data() + static_cast<size_t>(begin + row) * 2 * width + tile * kTile;
              gate = simd::add(gate, simd::load(addition));
              up = simd::add(up, simd::load(addition + width));
            }
            simd::store(gated_.row(begin + row) + tile * kTile, simd::mul(activate(decoder_.activation, gate), up));
          }
        }
        for (int row = 0; row < block; row++) gated_.quantise(begin + row, group * kGroup, (group + 1) * kGroup);
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

// Norms and turns the queries and keys of some kv heads, and writes keys and values to the cache.
template <class Cache>
void Session::write_row(const Layer& layer, const KvLayer& cache, const Step& step, int row, int first_head,
                        int last_head) {
  const int head_dim = decoder_.head_dim;
  const int share = decoder_.heads / decoder_.kv_heads;
  float* queries = projected_.data() + static_cast<size_t>(row) * (decoder_.heads + 2 * decoder_.kv_heads) * head_dim;
  float* keys = queries + decoder_.heads * head_dim;
  const float* values = keys + decoder_.kv_heads * head_dim;
  const size_t angles = (static_cast<size_t>(layer.rope) * step.num_rows + row) * (head_dim / 2);
  const auto turn = [&](float* x, const float* norm) {
    if (norm != nullptr) rms_norm(x, norm, decoder_.eps, head_dim, x);
    if (layer.rope >= 0)
      rotate(x, cosines_.data() + angles, sines_.data() + angles, decoder_.ropes[layer.rope].rotary);
  };
  const simd::Floats scale = simd::splat(decoder_.score_scale);
  for (int head = first_head * share; head < last_head * share; head++) {
    float* query = queries + head * head_dim;
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

template <class Cache>
void Session::attend_run(const Layer& layer, const KvLayer& cache, const Step& step, int row, int rows, int kv_head,
                         AttentionScratch& scratch) {
  const int head_dim = decoder_.head_dim;
  const int share = decoder_.heads / decoder_.kv_heads;
  const int stride = (decoder_.heads + 2 * decoder_.kv_heads) * head_dim;
  const int column = kv_head * share * head_dim;
  AttentionTask task;
  task.queries = projected_.data() + static_cast<size_t>(row) * stride + column;
  task.out = attended_.row(row) + column;
  task.query_stride = stride;
  task.out_stride = attended_.columns;
  task.rows = rows;
  task.heads = share;
  task.kv_head = kv_head;
  task.blocks = step.blocks + step.first_block[step.sequences[row]];
  task.position = step.positions[row];
  task.window = layer.window;
  task.soft_cap = decoder_.score_cap;
  attend<Cache>(cache, task, scratch);
  for (int i = row; i < row + rows; i++) attended_.quantise(i, column, column + share * head_dim);
}

void Session::copy_blocks(const int32_t* pairs, int count) {
  const size_t bytes = layout_.block_bytes();
  copied_.reserve(bytes * count);
  for (const KvLayer& cache : caches_) {
    for (int i = 0; i < count; i++) std::memcpy(copied_.data() + i * bytes, cache.block(pairs[2 * i]), bytes);
    for (int i = 0; i < count; i++) std::memcpy(cache.block(pairs[2 * i + 1]), copied_.data() + i * bytes, bytes);
  }
}

void Session::logits(const float* hidden, int count, float* logits) {
  for (int row = 0; row < count; row += kMostRows)
    logits_part(hidden + static_cast<size_t>(row) * decoder_.hidden, std::min(kMostRows, count - row),
                logits + static_cast<size_t>(row) * decoder_.vocabulary);
}

void Session::logits_part(const float* hidden, int count, float* logits) {
  const int vocabulary = decoder_.vocabulary;
  last_normed_.columns = decoder_.hidden;
  last_normed_.fine = true;
  last_normed_.reserve(count, decoder_.hidden);
  pool_.run([&](Team& team) {
    team.share(count, [&](int row) {
      rms_norm(hidden + static_cast<size_t>(row) * decoder_.hidden, decoder_.norm, decoder_.eps, decoder_.hidden,
               last_normed_.row(row));
      last_normed_.quantise(row, 0, decoder_.hidden);
    });
    share_pieces(team, decoder_.head.tiles(), bytes_of_tile(decoder_.head), count, [&](int first, int last) {
      float results[kRowBlock * kTile];
      for (int begin = 0; begin < count; begin += kRowBlock) {
        const int block = std::min(kRowBlock, count - begin);
        for (int tile = first; tile < last; tile++) {
          multiply(decoder_.head, tile, last_normed_, begin, block, results);
          const int width = std::min(kTile, vocabulary - tile * kTile);
          for (int row = 0; row < block; row++) {
            float* result = results + row * kTile;
            if (decoder_.logits_cap != 0.0f) simd::store(result, soft_cap(simd::load(result), decoder_.logits_cap));
            std::memcpy(logits + static_cast<size_t>(begin + row) * vocabulary + tile * kTile, result,
                        width * sizeof(float));
          }
        }
      }
    });
  });
}

}  // namespace kernels
