// Latent attention: what becomes of a layer's inputs before it, and of what heads find behind it.
#include <algorithm>
#include <cstring>

#include "decoder.h"
#include "multiply.h"
#include "pieces.h"
#include "vector_math.h"

namespace kernels {

// What is of one head is a row of its own here, and those of a head follow one another.
void Session::reserve_heads(int rows) {
  const Layer* layer = std::find_if(decoder_.layers, decoder_.layers + decoder_.num_layers,
                                    [](const Layer& each) { return each.latent != nullptr; });
  compressed_queries_.columns = layer->latent->queries.columns;
  plain_queries_.columns = layer->latent->keys.columns;
  compressed_queries_.reserve(rows, compressed_queries_.columns, rows);
  plain_queries_.reserve(rows * decoder_.heads, plain_queries_.columns, rows * decoder_.heads);
  latent_queries_.reserve(static_cast<size_t>(rows) * decoder_.heads * decoder_.head_dim);
  attended_.columns = decoder_.value_dim;
}

// A part of a row that turns, whose dimensions lie pair by pair.
void Session::turn_pairs(const Layer& layer, const Step& step, int row, float* x) {
  const size_t angles = first_angle(layer, step, row);
  if (layer.rope >= 0)
    rotate_pairs(x, cosines_.data() + angles, sines_.data() + angles, decoder_.ropes[layer.rope].rotary);
}

// Compressed vectors to the cache, and those that queries are made of normed. Inputs are both of them, side by side.
template <class Cache>
void Session::write_latents(Team& team, const Step& step, int index) {
  const Layer& layer = decoder_.layers[index];
  const Latent& latent = *layer.latent;
  const int rank = decoder_.value_dim;
  team.share(step.num_rows, [&](int row) {
    float* key = projected_.data() + static_cast<size_t>(row) * layer.input_width();
    rms_norm(key, latent.norm, latent.eps, rank, key);
    turn_pairs(layer, step, row, key + rank);
    const int offset = step.positions[row] % layout_.block_size;
    caches_[index].write<Cache>(step.block_of(row, layout_.block_size), offset, 0, key, key);
    if (latent.query_norm == nullptr) return;
    const int width = latent.queries.columns;
    rms_norm(key + decoder_.head_dim, latent.query_norm, latent.eps, width, compressed_queries_.row(row));
    compressed_queries_.quantise(row, 0, width);
  });
}

// Queries of compressed vectors, scaled. Writes over the inputs, where queries are not among them.
void Session::make_queries(Team& team, const Step& step, int index) {
  const Layer& layer = decoder_.layers[index];
  const Latent& latent = *layer.latent;
  const int rows = step.num_rows;
  float* made = projected_.data() + decoder_.head_dim;
  int stride = layer.input_width();
  if (latent.query_norm != nullptr) {
    made = projected_.data();
    stride = latent.queries.tiles() * kTile;
    project(team, rows, &latent.queries, latent.queries.tiles(), compressed_queries_, made, stride);
    adapt(team, step, index, &AdaptedLayer::queries, compressed_queries_, made, stride);
  }
  const int plain = latent.keys.columns;
  const int rank = decoder_.value_dim;
  const int width = plain + decoder_.head_dim - rank;
  const simd::Floats scale = simd::splat(decoder_.score_scale);
  team.share(rows, [&](int row) {
    for (int head = 0; head < decoder_.heads; head++) {
      float* query = made + static_cast<size_t>(row) * stride + head * width;
      for (int i = 0; i < width; i += 16) simd::store(query + i, simd::mul(simd::load(query + i), scale));
      std::memcpy(plain_queries_.row(head * rows + row), query, plain * sizeof(float));
      plain_queries_.quantise(head * rows + row, 0, plain);
      turn_pairs(layer, step, row, query + plain);
      std::memcpy(queries_of(layer, row) + head * decoder_.head_dim + rank, query + plain, (width - plain) * sizeof(float));
    }
  });
  project_heads(team, rows, latent.keys, plain_queries_, latent_queries_.data(), decoder_.head_dim);
}

// Values of what heads found.
void Session::make_values(Team& team, int rows, const Latent& latent) {
  project_heads(team, rows, latent.values, attended_, mixed_.row(0), latent.values.rows / decoder_.heads);
  team.share(rows, [&](int row) { mixed_.quantise(row, 0, mixed_.columns); });
}

// Each head's part of a matrix times that head's rows of `x`. out [rows][heads][head_stride].
void Session::project_heads(Team& team, int rows, const Matrix& matrix, const Activations& x, float* out,
                            int head_stride) {
  const int tiles = matrix.tiles() / decoder_.heads;
  share_blocks(team, matrix.tiles(), bytes_of_tile(matrix), rows, [&](int first, int last, int begin, int block) {
    float results[kRowBlock * kTile];
    for (int tile = first; tile < last; tile++) {
      const int head = tile / tiles;
      multiply(matrix, tile, x, head * rows + begin, block, results);
      for (int row = 0; row < block; row++) {
        const size_t at = (static_cast<size_t>(begin + row) * decoder_.heads + head) * head_stride;
        std::memcpy(out + at + tile % tiles * kTile, results + row * kTile, kTile * sizeof(float));
      }
    }
  });
}

template void Session::write_latents<SingleCache>(Team&, const Step&, int);
template void Session::write_latents<BfloatCache>(Team&, const Step&, int);

}  // namespace kernels
