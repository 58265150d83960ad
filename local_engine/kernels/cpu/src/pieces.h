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
constexpr int kMostPieces = 12;
constexpr size_t kPieceBytes = 128 << 10;
// Fewer pieces are all alike.
constexpr int kEvenPieces = 8;
// Rows that cost as much as reading the weights does.
constexpr int kReadingRows = 4;

// How many pieces `count` items of `bytes` of weights each are cut into.
inline int pieces_of(const Team& team, int count, size_t bytes, int rows) {
  const size_t work = bytes * count * (1 + rows / kReadingRows) / (team.size() * kPieceBytes);
  const int each = static_cast<int>(std::min<size_t>(std::max<size_t>(work, 1), kMostPieces));
  return std::min(count, team.size() == 1 ? 1 : team.size() * each);
}

// Where a piece begins. Many become smaller towards the end, so that the threads end at about the same time: of n, the
// first has nearly 2 / n of the items, the last 1 / n^2.
inline int begin_of(int piece, int pieces, int count) {
  const int64_t share = pieces < kEvenPieces ? piece * pieces : static_cast<int64_t>(piece) * (2 * pieces - piece);
  return static_cast<int>(count * share / (static_cast<int64_t>(pieces) * pieces));
}

// Runs function(first, last) over the pieces.
template <class Function>
void share_pieces(Team& team, int count, size_t bytes, int rows, Function&& function) {
  const int pieces = pieces_of(team, count, bytes, rows);
  team.share(pieces,
             [&](int piece) { function(begin_of(piece, pieces, count), begin_of(piece + 1, pieces, count)); });
}

// The same, a block of rows at a time: function(first, last, first row, rows).
template <class Function>
void share_blocks(Team& team, int count, size_t bytes, int rows, Function&& function) {
  const int pieces = pieces_of(team, count, bytes, rows);
  const int blocks = (rows + kRowBlock - 1) / kRowBlock;
  team.share(pieces * blocks, [&](int place) {
    const int piece = place / blocks;
    const int row = place % blocks * kRowBlock;
    function(begin_of(piece, pieces, count), begin_of(piece + 1, pieces, count), row, std::min(kRowBlock, rows - row));
  });
}

inline size_t bytes_of_tile(const Matrix& matrix) { return tile_bytes(matrix.format, matrix.columns); }

}  // namespace kernels
