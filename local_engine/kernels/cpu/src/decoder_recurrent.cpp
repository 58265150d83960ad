// Layers of a step that have states in place of keys and values.
#include "decoder.h"

namespace kernels {

// Rows of each sequence, and the slots that they read and write.
void Session::find_state_runs(const Step& step) {
  state_runs_.clear();
  if (step.states == nullptr) return;
  for (int row = 0; row < step.num_rows; row++) {
    const int32_t sequence = step.sequences[row];
    if (row > 0 && step.sequences[row - 1] == sequence) {
      state_runs_.back().rows++;
    } else {
      state_runs_.push_back({row, 1, sources_[sequence], step.targets[sequence]});
      sources_[sequence] = step.targets[sequence];  // where a later part of the step goes on
    }
  }
}

// From what a layer's inputs give to what its last matrix reads, and to the states behind the rows.
void Session::recur(Team& team, const Step& step, int index) {
  const Layer& layer = decoder_.layers[index];
  const RecurrentStep part{*layer.recurrent,
                           step.states[index],
                           state_runs_.data(),
                           static_cast<int>(state_runs_.size()),
                           projected_.data(),
                           static_cast<size_t>(layer.input_width()),
                           mixed_};
  switch (layer.recurrent->kind) {
    case kShortConvolution: return short_convolution(team, part);
    case kGatedDelta: return gated_delta(team, part);
    case kMamba2: return mamba2(team, part);
  }
}

}  // namespace kernels
