// Which rows of a step go through the layers together.
#include <algorithm>
#include <cstring>

#include "decoder.h"

namespace kernels {
namespace {

// Rows that go through the layers together: bounds the memory of a step.
constexpr int kMostRows = 256;

}  // namespace

// Rows from `first` on that go through the layers together: none of them sees keys of a later part, so that a part may be
// longer than others.
int Session::part_rows(const Step& step, int first) const {
  const auto cuts = [&](int row) {
    return row < step.num_rows && step.seen_by(row) != 0 && step.seen_by(row) == step.seen_by(row - 1) &&
           step.sequences[row] == step.sequences[row - 1];
  };
  int end = std::min(first + kMostRows, step.num_rows);
  while (end > first && cuts(end)) end--;
  if (end > first) return end - first;
  for (end = first + 1; cuts(end); end++) {
  }
  return end - first;
}

// How many rows are wanted; which, `wanted_` says then.
int Session::find_wanted(const Step& step) {
  wanted_.clear();
  for (int row = 0; row < step.num_rows; row++)
    if (step.wanted == nullptr || step.wanted[row] != 0) wanted_.push_back(row);
  return static_cast<int>(wanted_.size());
}

// The wanted rows as a step of their own, their states and queries moved to the front.
Step Session::only_wanted(const Step& step, float* hidden) {
  const int width = decoder_.hidden;
  const Layer& layer = decoder_.layers[decoder_.num_layers - 1];
  const int queries = decoder_.heads * decoder_.query_stride();
  wanted_positions_.clear();
  wanted_sequences_.clear();
  wanted_adapters_.clear();
  wanted_seen_.clear();
  for (size_t to = 0; to < wanted_.size(); to++) {
    const size_t from = wanted_[to];
    std::memmove(hidden + to * width, hidden + from * width, width * sizeof(float));
    if (layer.recurrent != nullptr) {
      mixed_.move(from, to);
    } else {
      std::memmove(queries_of(layer, to), queries_of(layer, from), queries * sizeof(float));
    }
    wanted_positions_.push_back(step.positions[from]);
    wanted_sequences_.push_back(step.sequences[from]);
    if (step.adapters != nullptr) wanted_adapters_.push_back(step.adapters[from]);
    if (step.seen != nullptr) wanted_seen_.push_back(step.seen[from]);
  }
  Step rest = step;
  rest.num_rows = static_cast<int32_t>(wanted_.size());
  rest.tokens = nullptr;
  rest.positions = wanted_positions_.data();
  rest.sequences = wanted_sequences_.data();
  if (step.adapters != nullptr) rest.adapters = wanted_adapters_.data();
  if (step.seen != nullptr) rest.seen = wanted_seen_.data();
  rest.wanted = nullptr;
  return rest;
}

}  // namespace kernels
