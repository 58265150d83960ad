// How a matrix is cut into pieces for the threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "format.h"
#include "thread_pool.h"

namespace kernels {

// Rows of activations that are multiplied before the next tile: they and the tile stay in the first caches.
constexpr int kRowBlock = 64;
// A matrix is cut into as many pieces as there are threads, or that number several times: so that one who comes late
// leaves its part to the others, and yet a piece is long enough to stream from memory.
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

inline size_t bytes_of_tile(const Matrix& matrix) { return tile_bytes(matrix.format, matrix.columns); }

}  // namespace kernels
