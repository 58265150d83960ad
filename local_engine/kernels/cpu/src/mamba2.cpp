// Mamba-2's state space (Dao and Gu 2024, section 6): for a token with input x, step d, directions b and c, and a head's
// rate r < 0 the state S becomes exp(d r) S + b (d x), and the output is c S. Token by token, in the columns of S by
// themselves.
#include "pieces.h"
#include "recurrent.h"
#include "vector_math.h"

namespace kernels {
namespace {

// Where the parts of a row are. Groups of heads share their directions, which are what key heads are elsewhere.
struct Parts {
  explicit Parts(const Recurrent& layer)
      : width(layer.value_heads * layer.value_dim),
        inputs(width),
        in_directions(inputs + width),
        out_directions(in_directions + layer.key_heads * layer.key_dim),
        steps(inputs + layer.channels) {}
  int width, inputs, in_directions, out_directions, steps;
};

void convolve_inputs(Team& team, const RecurrentStep& step) {
  const Recurrent& layer = step.layer;
  const Parts parts(layer);
  const int groups = layer.channels / kGroup;
  share_runs(team, step, groups, [&](const StateRun& run, int piece, int pieces) {
    const int first = begin_of(piece, pieces, groups) * kGroup;
    const int last = begin_of(piece + 1, pieces, groups) * kGroup;
    float* tail = begin_tail(step, run, first, last);
    for (int row = run.row; row < run.row + run.rows; row++) {
      float* x = step.row(row) + parts.inputs;
      for (int i = first; i < last; i += kTile)
        simd::store(x + i, activate(kSilu, convolve(layer, tail, i, simd::load(x + i))));
    }
  });
}

// Columns of a head's state through all rows of a run.
template <int kVectors>
void recur_columns(const RecurrentStep& step, const StateRun& run, int head, int column) {
  const Recurrent& layer = step.layer;
  const Parts parts(layer);
  const int group = head / (layer.value_heads / layer.key_heads);
  const float* source = step.matrix(run.source, head) + column;
  float* target = step.matrix(run.target, head) + column;
  const int at = head * layer.value_dim + column;
  for (int row = run.row; row < run.row + run.rows; row++, source = target) {
    const float* projected = step.row(row);
    const float* in = projected + parts.in_directions + group * layer.key_dim;
    const float* out = projected + parts.out_directions + group * layer.key_dim;
    const float time = softplus(projected[parts.steps + head] + layer.rate_bias[head]);
    const simd::Floats decay = simd::splat(std::exp(time * layer.rates[head]));
    simd::Floats added[kVectors];
    simd::Floats found[kVectors];
    for (int i = 0; i < kVectors; i++) {
      added[i] = simd::mul(simd::load(projected + parts.inputs + at + i * kTile), simd::splat(time));
      found[i] = simd::zero();
    }
    const float* from = source;
    float* to = target;
    for (int d = 0; d < layer.key_dim; d++, from += layer.value_dim, to += layer.value_dim)
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; i++) {
        const simd::Floats state =
            simd::fma(simd::splat(in[d]), added[i], simd::mul(decay, simd::load(from + i * kTile)));
        simd::store(to + i * kTile, state);
        found[i] = simd::fma(simd::splat(out[d]), state, found[i]);
      }
    for (int i = 0; i < kVectors; i++) {
      const simd::Floats x = simd::load(projected + parts.inputs + at + i * kTile);
      const simd::Floats output = simd::fma(x, simd::splat(layer.direct[head]), found[i]);
      const simd::Floats gate = activate(kSilu, simd::load(projected + at + i * kTile));
      simd::store(step.out.row(row) + at + i * kTile, simd::mul(output, gate));
    }
  }
}

}  // namespace

void mamba2(Team& team, const RecurrentStep& step) {
  const Recurrent& layer = step.layer;
  convolve_inputs(team, step);
  const int heads = layer.value_heads;
  share_runs(team, step, heads, [&](const StateRun& run, int piece, int pieces) {
    constexpr int kVectors = simd::kStateVectors;
    for (int head = begin_of(piece, pieces, heads); head < begin_of(piece + 1, pieces, heads); head++) {
      int column = 0;
      for (; column + kVectors * kTile <= layer.value_dim; column += kVectors * kTile)
        recur_columns<kVectors>(step, run, head, column);
      for (; column < layer.value_dim; column += kTile) recur_columns<1>(step, run, head, column);
    }
  });
  // Each group of heads has a norm of its own.
  const int width = Parts(layer).width;
  const int group = width / layer.key_heads;
  const int rows = step.runs[step.num_runs - 1].row + step.runs[step.num_runs - 1].rows;
  team.share(rows, [&](int row) {
    float* out = step.out.row(row);
    for (int i = 0; i < width; i += group) rms_norm(out + i, layer.norm + i, layer.eps, group, out + i);
    step.out.quantise(row, 0, width);
  });
}

}  // namespace kernels
