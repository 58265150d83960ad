#include "pieces.h"
#include "recurrent.h"

namespace kernels {

void short_convolution(Team& team, const RecurrentStep& step) {
  const Recurrent& layer = step.layer;
  const int groups = layer.channels / kGroup;
  share_runs(team, step, groups, [&](const StateRun& run, int piece, int pieces) {
    const int first = begin_of(piece, pieces, groups) * kGroup;
    const int last = begin_of(piece + 1, pieces, groups) * kGroup;
    float* tail = begin_tail(step, run, first, last);
    for (int row = run.row; row < run.row + run.rows; row++) {
      const float* gates = step.row(row);
      const float* out_gates = gates + layer.channels;
      const float* x = out_gates + layer.channels;
      for (int i = first; i < last; i += kTile) {
        const simd::Floats output = convolve(layer, tail, i, simd::mul(simd::load(gates + i), simd::load(x + i)));
        simd::store(step.out.row(row) + i, simd::mul(simd::load(out_gates + i), output));
      }
      step.out.quantise(row, first, last);
    }
  });
}

}  // namespace kernels
