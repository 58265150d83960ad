// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, section 3): for a token with key k, value v, decay a and strength b
// the state S becomes a S + b k (v - k a S), and the output is q S. Token by token, in the columns of S by themselves.
#include <cmath>

#include "pieces.h"
#include "recurrent.h"
#include "vector_math.h"

namespace kernels {
namespace {

constexpr float kLengthEpsilon = 1e-6f;

// Where the parts of a row are.
struct Parts {
  explicit Parts(const Recurrent& layer)
      : keys(layer.key_heads * layer.key_dim),
        values(2 * keys),
        gates(layer.channels),
        strengths(gates + layer.value_heads * layer.value_dim),
        rates(strengths + layer.value_heads) {}
  int keys, values, gates, strengths, rates;
};

// Head `index` of queries, keys and values: its channels.
int begin_of_head(const Recurrent& layer, int index) {
  const int key_heads = 2 * layer.key_heads;
  return index < key_heads ? index * layer.key_dim : key_heads * layer.key_dim + (index - key_heads) * layer.value_dim;
}

// Queries, keys and values convolved, the first two in the length that they are to have.
void convolve_heads(Team& team, const RecurrentStep& step) {
  const Recurrent& layer = step.layer;
  const int heads = 2 * layer.key_heads + layer.value_heads;
  const float query_length = 1.0f / std::sqrt(static_cast<float>(layer.key_dim));
  share_runs(team, step, heads, [&](const StateRun& run, int piece, int pieces) {
    const int first = begin_of(piece, pieces, heads);
    const int last = begin_of(piece + 1, pieces, heads);
    float* tail = begin_tail(step, run, begin_of_head(layer, first), begin_of_head(layer, last));
    for (int row = run.row; row < run.row + run.rows; row++)
      for (int head = first; head < last; head++) {
        float* x = step.row(row);
        const int begin = begin_of_head(layer, head);
        const int end = begin_of_head(layer, head + 1);
        for (int i = begin; i < end; i += kTile)
          simd::store(x + i, activate(kSilu, convolve(layer, tail, i, simd::load(x + i))));
        if (head >= 2 * layer.key_heads) continue;
        const float squares = dot(x + begin, x + begin, layer.key_dim);
        const simd::Floats length =
            simd::splat((head < layer.key_heads ? query_length : 1.0f) / std::sqrt(squares + kLengthEpsilon));
        for (int i = begin; i < end; i += kTile) simd::store(x + i, simd::mul(simd::load(x + i), length));
      }
  });
}

// What a row adds to the state of some columns, and how much of what was there stays.
template <int kVectors>
struct Change {
  const float* key;
  float decay;
  simd::Floats correction[kVectors];

  simd::Floats apply(int d, int i, simd::Floats state) const {
    return simd::fma(simd::splat(key[d]), correction[i], simd::mul(simd::splat(decay), state));
  }
};

// k S and q S, where `change` is still to be made: `from` is the state before it, and `to` becomes the one behind it, so
// that the state passes through the registers once a row.
template <bool kChanges, int kVectors>
void read_state(const Recurrent& layer, const Change<kVectors>& change, const float* from, float* to, const float* q,
                const float* k, simd::Floats* known, simd::Floats* found) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; i++) known[i] = found[i] = simd::zero();
  for (int d = 0; d < layer.key_dim; d++, from += layer.value_dim, to += layer.value_dim)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; i++) {
      simd::Floats state = simd::load(from + i * kTile);
      if (kChanges) {
        state = change.apply(d, i, state);
        simd::store(to + i * kTile, state);
      }
      known[i] = simd::fma(simd::splat(k[d]), state, known[i]);
      found[i] = simd::fma(simd::splat(q[d]), state, found[i]);
    }
}

// Columns of a value head's state through all rows of a run, which have strengths and decays already.
template <int kVectors>
void recur_columns(const RecurrentStep& step, const StateRun& run, int head, int column) {
  const Recurrent& layer = step.layer;
  const Parts parts(layer);
  const int key_head = layer.tiled != 0 ? head % layer.key_heads : head / (layer.value_heads / layer.key_heads);
  const float* from = step.matrix(run.source, head) + column;
  float* to = step.matrix(run.target, head) + column;
  Change<kVectors> change{};
  for (int row = run.row; row < run.row + run.rows; row++) {
    const float* x = step.row(row);
    const float* q = x + key_head * layer.key_dim;
    const float* k = q + parts.keys;
    const float* v = x + parts.values + head * layer.value_dim + column;
    simd::Floats known[kVectors];
    simd::Floats found[kVectors];
    if (row == run.row) {
      read_state<false>(layer, change, from, to, q, k, known, found);
    } else {
      read_state<true>(layer, change, from, to, q, k, known, found);
      from = to;
    }
    change.key = k;
    change.decay = x[parts.rates + head];
    const simd::Floats decay = simd::splat(change.decay);
    const simd::Floats strength = simd::splat(x[parts.strengths + head]);
    const simd::Floats own = simd::splat(dot(q, k, layer.key_dim));
    float* out = step.out.row(row) + head * layer.value_dim + column;
    for (int i = 0; i < kVectors; i++) {
      const simd::Floats wrong = simd::sub(simd::load(v + i * kTile), simd::mul(decay, known[i]));
      change.correction[i] = simd::mul(strength, wrong);
      simd::store(out + i * kTile, simd::fma(own, change.correction[i], simd::mul(decay, found[i])));
    }
  }
  for (int d = 0; d < layer.key_dim; d++, from += layer.value_dim, to += layer.value_dim)
    for (int i = 0; i < kVectors; i++) simd::store(to + i * kTile, change.apply(d, i, simd::load(from + i * kTile)));
}

void recur_head(const RecurrentStep& step, const StateRun& run, int head) {
  const Recurrent& layer = step.layer;
  const Parts parts(layer);
  for (int row = run.row; row < run.row + run.rows; row++) {
    float& strength = step.row(row)[parts.strengths + head];
    float& rate = step.row(row)[parts.rates + head];
    strength = 1.0f / (1.0f + std::exp(-strength));
    rate = std::exp(layer.rates[head] * softplus(rate + layer.rate_bias[head]));
  }
  constexpr int kVectors = simd::kStateVectors;
  int column = 0;
  for (; column + kVectors * kTile <= layer.value_dim; column += kVectors * kTile)
    recur_columns<kVectors>(step, run, head, column);
  for (; column < layer.value_dim; column += kTile) recur_columns<1>(step, run, head, column);
  const int begin = head * layer.value_dim;
  for (int row = run.row; row < run.row + run.rows; row++) {
    float* out = step.out.row(row) + begin;
    const float* gate = step.row(row) + parts.gates + begin;
    rms_norm(out, layer.norm, layer.eps, layer.value_dim, out);
    for (int i = 0; i < layer.value_dim; i += kTile)
      simd::store(out + i, simd::mul(simd::load(out + i), activate(kSilu, simd::load(gate + i))));
    step.out.quantise(row, begin, begin + layer.value_dim);
  }
}

}  // namespace

void gated_delta(Team& team, const RecurrentStep& step) {
  convolve_heads(team, step);
  const int heads = step.layer.value_heads;
  share_runs(team, step, heads, [&](const StateRun& run, int piece, int pieces) {
    for (int head = begin_of(piece, pieces, heads); head < begin_of(piece + 1, pieces, heads); head++)
      recur_head(step, run, head);
  });
}

}  // namespace kernels
