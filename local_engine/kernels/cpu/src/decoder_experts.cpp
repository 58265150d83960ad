// Layers with experts: which rows each computes, and what it adds to them.
//
// An expert's weights are read once for all its rows, and its rows lie side by side for that. A row's additions come in the
// order of the experts, so they are the same in any company.
#include <algorithm>

#include "decoder.h"
#include "multiply.h"
#include "pieces.h"
#include "vector_math.h"

namespace kernels {

void Session::reserve_experts(int rows) {
  const Routing& routing = decoder_.routing;
  const size_t pairs = static_cast<size_t>(rows) * routing.per_token;
  beside_.columns = decoder_.shared;
  gathered_.columns = decoder_.hidden;
  expert_gated_.columns = routing.width;
  beside_.reserve(rows, beside_.columns, keeps_floats_ ? rows : 0);
  gathered_.reserve(pairs, gathered_.columns, keeps_floats_ ? pairs : 0);
  expert_gated_.reserve(pairs, expert_gated_.columns, keeps_floats_ ? pairs : 0);
  shared_factors_.reserve(rows);
  router_.reserve(static_cast<size_t>(rows) * 3 * padded_experts(routing.count));
  choices_.reserve(pairs);
  expert_rows_.reserve(pairs);
  expert_places_.reserve(routing.count);
  pair_rows_.reserve(pairs);
  pair_shares_.reserve(pairs);
}

// Leaves the rows of each expert side by side in `gathered_`; a lone row stays where it is.
void Session::route(Team& team, int rows, const Experts& experts) {
  const Routing& routing = decoder_.routing;
  const int stride = 3 * padded_experts(routing.count);
  project(team, rows, &experts.router, experts.router.tiles(), normed_, router_.data(), stride);
  team.share(rows, [&](int row) {
    choose_experts(routing, experts.correction, router_.data() + static_cast<size_t>(row) * stride,
                   choices_.data() + static_cast<size_t>(row) * routing.per_token);
    if (experts.shared_gate == nullptr) return;
    const float gate = dot(experts.shared_gate, normed_.row(row), decoder_.hidden);
    shared_factors_.data()[row] = simd::maximum(sigmoid(simd::splat(gate)));
  });
  team.share(1, [&](int) { group_rows(rows); });
  if (rows == 1) return;
  team.share(rows * routing.per_token,
             [&](int pair) { gathered_.copy_row(normed_, pair_rows_.data()[pair], pair, keeps_floats_); });
}

void Session::group_rows(int rows) {
  const Routing& routing = decoder_.routing;
  const Choice* choices = choices_.data();
  const int pairs = rows * routing.per_token;
  int32_t* places = expert_places_.data();
  std::fill(places, places + routing.count, 0);
  for (int i = 0; i < pairs; i++) places[choices[i].expert]++;
  expert_rows_.clear();
  int next = 0;
  for (int expert = 0; expert < routing.count; expert++) {
    const int end = next + places[expert];
    places[expert] = next;
    for (; next < end; next = std::min(next + kRowBlock, end))
      expert_rows_.push_back({expert, next, std::min(kRowBlock, end - next)});
  }
  for (int i = 0; i < pairs; i++) {
    const int place = places[choices[i].expert]++;
    pair_rows_.data()[place] = i / routing.per_token;
    pair_shares_.data()[place] = choices[i].share;
  }
}

// Gate and up of all experts as one row of units, and then down, a piece of all its matrices at a time. How many units
// there are only items may know: who leaves a call reads nothing.
void Session::add_experts(Team& team, int rows, const Experts& experts, float* hidden) {
  const Routing& routing = decoder_.routing;
  const int pairs = rows * routing.per_token;
  const int used = std::min(pairs, routing.count);
  const int rows_each = pairs / used;
  const int groups = routing.width / kGroup;
  const int pieces = pieces_of(team, used * groups, 4 * bytes_of_tile(experts.gate[0]), rows_each);
  team.share(pieces, [&](int piece) {
    const int units = static_cast<int>(expert_rows_.size()) * groups;
    const int last = begin_of(piece + 1, pieces, units);
    for (int unit = begin_of(piece, pieces, units), end = 0; unit < last; unit = end) {
      const ExpertRows& some = expert_rows_[unit / groups];
      end = std::min(last, (unit / groups + 1) * groups);
      const bool lone = rows == 1;
      gate_groups({experts.gate[some.expert], experts.up[some.expert], lone ? normed_ : gathered_, lone ? 0 : some.first,
                   expert_gated_, some.first, some.rows, nullptr, nullptr, routing.slope, routing.limit},
                  unit % groups, end - unit / groups * groups);
    }
  });
  const Matrix& down = experts.down[0];
  share_pieces(team, down.tiles(), used * bytes_of_tile(down), rows_each, [&](int first, int last) {
    for (const ExpertRows& some : expert_rows_) add_expert(experts.down[some.expert], some, first, last, hidden);
  });
}

void Session::add_expert(const Matrix& down, const ExpertRows& some, int first, int last, float* hidden) {
  float results[kRowBlock * kTile];
  for (int tile = first; tile < last; tile++) {
    multiply(down, tile, expert_gated_, some.first, some.rows, results);
    for (int row = 0; row < some.rows; row++) {
      const size_t pair = some.first + row;
      float* out = hidden + static_cast<size_t>(pair_rows_.data()[pair]) * decoder_.hidden + tile * kTile;
      const simd::Floats share = simd::splat(pair_shares_.data()[pair]);
      simd::store(out, simd::fma(simd::load(results + row * kTile), share, simd::load(out)));
    }
  }
}

}  // namespace kernels
