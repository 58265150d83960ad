// A layer's block of gate, up and down.
#include <algorithm>

#include "decoder.h"
#include "multiply.h"
#include "pieces.h"
#include "vector_math.h"

namespace kernels {

// The block of all rows: with experts in the layer, the one beside them. factors: of what each row gets, or null.
void Session::feed_forward(Team& team, const Step& step, int index, const float* factors, float* out, bool add) {
  const Layer& layer = decoder_.layers[index];
  Activations& gated = layer.experts == nullptr ? gated_ : beside_;
  gate(team, step, index, factors, gated);
  project_back(team, step.num_rows, layer.down, gated, out, add);
  adapt(team, step, index, &AdaptedLayer::down, gated, out, decoder_.hidden);
}

void Session::gate(Team& team, const Step& step, int index, const float* factors, Activations& gated) {
  const Layer& layer = decoder_.layers[index];
  const int rows = step.num_rows;
  const size_t width = gated.columns;
  const bool adapted = step.adapters != nullptr;
  if (adapted) {
    team.share(rows, [&](int row) {
      float* addition = additions_.data() + row * 2 * width;
      std::fill(addition, addition + 2 * width, 0.0f);
    });
    adapt(team, step, index, &AdaptedLayer::gate_up, normed_, additions_.data(), 2 * gated.columns);
  }
  const size_t bytes = 4 * bytes_of_tile(layer.gate);
  share_blocks(team, gated.columns / kGroup, bytes, rows, [&](int first, int last, int begin, int block) {
    gate_groups({layer.gate, layer.up, normed_, begin, gated, begin, block,
                 adapted ? additions_.data() + begin * 2 * width : nullptr, factors == nullptr ? nullptr : factors + begin},
                first, last);
  });
}

// Groups of 32 columns, two tiles of gate and two of up each, which are then quantised: of one row many at once.
void Session::gate_groups(const Gating& gating, int first, int last) {
  Activations& gated = gating.gated;
  const int rows = gating.rows;
  const int together = rows == 1 ? kRowBlock : 1;
  float gates[kRowBlock * kTile];
  float ups[kRowBlock * kTile];
  float passing[kRowBlock * kGroup];
  for (int group = first; group < last; group += together) {
    const int end = std::min(group + together, last);
    float* out = keeps_floats_ ? gated.row(gating.to) + group * kGroup : passing;
    const int stride = keeps_floats_ ? gated.columns : kGroup;
    for (int tile = 2 * group; tile < 2 * end; tile++) {
      multiply(gating.gate, tile, gating.x, gating.from, rows, gates);
      multiply(gating.up, tile, gating.x, gating.from, rows, ups);
      for (int row = 0; row < rows; row++) {
        simd::Floats gate = simd::load(gates + row * kTile);
        simd::Floats up = simd::load(ups + row * kTile);
        if (gating.additions != nullptr) {
          const float* addition = gating.additions + static_cast<size_t>(row) * 2 * gated.columns + tile * kTile;
          gate = simd::add(gate, simd::load(addition));
          up = simd::add(up, simd::load(addition + gated.columns));
        }
        if (gating.factors != nullptr) up = simd::mul(up, simd::splat(gating.factors[row]));
        const simd::Floats unit = gating.limit != 0.0f ? clamped_unit(gate, up, gating.slope, gating.limit)
                                                       : simd::mul(activate(decoder_.activation, gate), up);
        simd::store(out + row * stride + (tile - 2 * group) * kTile, unit);
      }
    }
    if (rows == 1) {
      gated.quantise(out, gating.to, group * kGroup, end * kGroup);
    } else {
      gated.quantise_rows(out, stride, gating.to, rows, group * kGroup);
    }
  }
}

}  // namespace kernels
