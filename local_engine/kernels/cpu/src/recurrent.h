// Layers that keep of a sequence a state of a fixed size in place of keys and values.
//
// All of them go row by row: what a row gives depends on the rows before it alone, however these were cut.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "activations.h"
#include "simd.h"
#include "thread_pool.h"

namespace kernels {

// The numbers are part of the interface to Python.
enum RecurrentKind : int32_t { kShortConvolution = 0, kGatedDelta = 1, kMamba2 = 2 };

// What such a layer has beside its norms and matrices. The interface to Python, as in decoder.h.
struct Recurrent {
  const float* tap_weights;  // of a convolution that each channel has by itself: [taps][channels]
  const float* tap_bias;     // [channels], or null
  const float* rates;        // of each value head's decay, below 0
  const float* rate_bias;    // [value_heads]
  const float* norm;         // of what a value head gives: [value_dim]; of Mamba-2, of what all give
  const float* direct;       // of Mamba-2: how much of its input each head adds to its output
  int32_t kind;
  int32_t taps;
  int32_t channels;
  int32_t key_heads, value_heads, key_dim, value_dim;  // of Mamba-2: groups, heads, a state's size, a head's
  int32_t tiled;  // value head i reads key head i modulo their number, else i divided by its share
  float eps;
  int32_t unused;
};

// Of one layer, a slot behind the other.
struct LayerStates {
  float* tails;     // [slots][taps - 1][channels]: the last inputs of the convolution
  float* matrices;  // [slots][value_heads][key_dim][value_dim], or null
};

// Neighbouring rows of a sequence: from the state in one slot to that in another, which may be the same.
struct StateRun {
  int row;
  int rows;
  int32_t source;
  int32_t target;
};

struct RecurrentStep {
  const Recurrent& layer;
  const LayerStates& states;
  const StateRun* runs;
  int num_runs;
  float* projected;  // what the layer's inputs give, a row at a stride; written over
  size_t stride;
  Activations& out;  // floats, and quantised

  float* row(int index) const { return projected + index * stride; }
  float* matrix(int32_t slot, int head) const {
    const size_t size = static_cast<size_t>(layer.key_dim) * layer.value_dim;
    return states.matrices + (static_cast<size_t>(slot) * layer.value_heads + head) * size;
  }
};

// Runs function(run, piece, pieces) over all runs, each cut into pieces where there are too few of them for the threads.
template <class Function>
void share_runs(Team& team, const RecurrentStep& step, int most_pieces, Function&& function) {
  constexpr int kItemsPerThread = 2;
  const int wanted = team.size() == 1 ? 1 : (kItemsPerThread * team.size() + step.num_runs - 1) / step.num_runs;
  const int pieces = wanted < most_pieces ? wanted : most_pieces;
  team.share(step.num_runs * pieces,
             [&](int item) { function(step.runs[item / pieces], item % pieces, pieces); });
}

// The tail of a run's next state; at first that of the state before, in channels first to last - 1.
inline float* begin_tail(const RecurrentStep& step, const StateRun& run, int first, int last) {
  const size_t channels = step.layer.channels;
  const size_t size = (step.layer.taps - 1) * channels;
  float* tail = step.states.tails + run.target * size;
  if (run.source != run.target)
    for (int tap = 0; tap + 1 < step.layer.taps; tap++)
      std::memcpy(tail + tap * channels + first, step.states.tails + run.source * size + tap * channels + first,
                  (last - first) * sizeof(float));
  return tail;
}

// The next output of 16 channels: the products of the taps, in the order of their positions. Moves the tail on.
inline simd::Floats convolve(const Recurrent& layer, float* tail, int channel, simd::Floats input) {
  const size_t channels = layer.channels;
  simd::Floats sum = simd::mul(simd::load(tail + channel), simd::load(layer.tap_weights + channel));
  for (int tap = 1; tap < layer.taps; tap++) {
    const simd::Floats next = tap + 1 < layer.taps ? simd::load(tail + tap * channels + channel) : input;
    sum = simd::fma(next, simd::load(layer.tap_weights + tap * channels + channel), sum);
    simd::store(tail + (tap - 1) * channels + channel, next);
  }
  return layer.tap_bias == nullptr ? sum : simd::add(sum, simd::load(layer.tap_bias + channel));
}

inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// LFM2: three parts as wide as the convolution, a gate of its input, a gate of its output, and what it reads.
void short_convolution(Team& team, const RecurrentStep& step);

// Qwen3.5: queries, keys and values, which the convolution reads, then gates of values, strengths, and rates of decays.
void gated_delta(Team& team, const RecurrentStep& step);

// Granite 4: gates, then inputs and both directions of each group, which the convolution reads, then steps.
void mamba2(Team& team, const RecurrentStep& step);

}  // namespace kernels
