// From the states of some rows to logits.
#include <algorithm>
#include <cstring>
#include <limits>

#include "decoder.h"
#include "multiply.h"
#include "pieces.h"
#include "vector_math.h"

namespace kernels {
namespace {

// Rows whose logits are computed together: bounds the memory.
constexpr int kMostRows = 512;
// Activations are rounded to bytes for all logits, and then finely for tiles with one that is this far below the row's
// largest: 11 of 3,072 on average in SmolLM2. The likeliest token is as often the right one as with all computed finely,
// and KL is 0.0014; 0.0012 with all, 0.0017 with none (2026-11).
constexpr float kRefinedLogits = 3.0f;
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

}  // namespace

void Session::logits(const float* hidden, int count, float* logits) {
  for (int row = 0; row < count; row += kMostRows)
    logits_part(hidden + static_cast<size_t>(row) * decoder_.hidden, std::min(kMostRows, count - row),
                logits + static_cast<size_t>(row) * decoder_.vocabulary);
}

void Session::logits_part(const float* hidden, int count, float* logits) {
  const int width = decoder_.hidden;
  last_fine_.fine = true;
  for (Activations* activations : {&last_coarse_, &last_fine_}) {
    activations->columns = width;
    activations->reserve(count, width, count);
  }
  largest_.reserve(static_cast<size_t>(count) * pool_.threads());
  std::fill(largest_.data(), largest_.data() + static_cast<size_t>(count) * pool_.threads(), kNoLogit);
  const size_t bytes = bytes_of_tile(decoder_.head);
  pool_.run([&](Team& team) {
    team.share(count, [&](int row) {
      norm_row(hidden + static_cast<size_t>(row) * width, decoder_.norm, last_coarse_.row(row));
      last_coarse_.quantise(row, 0, width);
      std::memcpy(last_fine_.row(row), last_coarse_.row(row), width * sizeof(float));
      last_fine_.quantise(row, 0, width);
    });
    share_pieces(team, decoder_.head.tiles(), bytes, count, [&](int first, int last) {
      coarse_logits(first, last, count, largest_.data() + static_cast<size_t>(team.member()) * count, logits);
    });
    if (is_dense(decoder_.head.format)) return;
    share_pieces(team, decoder_.head.tiles(), bytes, count, [&](int first, int last) {
      for (int row = 0; row < count; row++) {
        float largest = kNoLogit;
        for (int thread = 0; thread < team.size(); thread++)
          largest = std::max(largest, largest_.data()[static_cast<size_t>(thread) * count + row]);
        refine_logits(first, last, row, largest - kRefinedLogits, logits);
      }
    });
  });
}

// Tiles of all rows' logits; raises the largest ones of each row.
void Session::coarse_logits(int first_tile, int last_tile, int count, float* largest, float* logits) {
  float results[kRowBlock * kTile];
  for (int begin = 0; begin < count; begin += kRowBlock) {
    const int block = std::min(kRowBlock, count - begin);
    simd::Floats most[kRowBlock];
    for (int row = 0; row < block; row++) most[row] = simd::splat(kNoLogit);
    for (int tile = first_tile; tile < last_tile; tile++) {
      multiply(decoder_.head, tile, last_coarse_, begin, block, results);
      for (int row = 0; row < block; row++)
        most[row] = simd::max(store_logits(tile, results + row * kTile, row_logits(logits, begin + row)), most[row]);
    }
    for (int row = 0; row < block; row++) largest[begin + row] = std::max(largest[begin + row], simd::maximum(most[row]));
  }
}

// Computes tiles of a row anew of which a logit reaches the floor.
void Session::refine_logits(int first_tile, int last_tile, int row, float floor, float* logits) {
  float results[kTile];
  for (int tile = first_tile; tile < last_tile; tile++) {
    const int width = std::min(kTile, decoder_.vocabulary - tile * kTile);
    const float* at = row_logits(logits, row) + tile * kTile;
    if (width < kTile) {
      std::fill(results, results + kTile, kNoLogit);
      std::memcpy(results, at, width * sizeof(float));
      at = results;
    }
    if (!(simd::maximum(simd::load(at)) >= floor)) continue;
    multiply(decoder_.head, tile, last_fine_, row, 1, results);
    store_logits(tile, results, row_logits(logits, row));
  }
}

// Returns them as stored, with none in place of those behind the vocabulary.
simd::Floats Session::store_logits(int tile, const float* results, float* logits) const {
  const int width = std::min(kTile, decoder_.vocabulary - tile * kTile);
  simd::Floats x = simd::load(results);
  if (decoder_.logits_cap != 0.0f) x = soft_cap(x, decoder_.logits_cap);
  if (width == kTile) {
    simd::store(logits + tile * kTile, x);
    return x;
  }
  float lanes[kTile];
  simd::store(lanes, x);
  std::memcpy(logits + tile * kTile, lanes, width * sizeof(float));
  return simd::keep_lanes(x, 0, width, simd::splat(kNoLogit));
}

float* Session::row_logits(float* logits, int row) const {
  return logits + static_cast<size_t>(row) * decoder_.vocabulary;
}

}  // namespace kernels
