// Whole decoders on random shapes: part of kernels_test.cpp.

#include <algorithm>
#include <memory>

#include "decoder.h"
#include "kernels_test.h"

namespace kernels {
namespace {

// The states of some rows are the same where the others are not asked for, and so are those of rows that follow.
void test_wanted(Session& session, Step step, std::vector<float> states, const std::vector<float>& expected, int hidden) {
  std::vector<uint8_t> wanted(step.num_rows);
  for (uint8_t& row : wanted) row = below(3) == 0;
  step.wanted = wanted.data();
  session.forward(step, states.data());
  for (int row = 0; row < step.num_rows; row++)
    require(wanted[row] == 0 || std::equal(&states[row * hidden], &states[row * hidden] + hidden, &expected[row * hidden]),
            "a wanted state");
}

constexpr int kSlots = 3;  // of states: the one of zeros, and two
constexpr float kDecays[16] = {-0.1f, -2.0f, -0.01f, -1.0f, -0.5f};

Recurrent random_recurrence(const float* weights) {
  Recurrent recurrent{};
  recurrent.kind = below(3);
  recurrent.taps = 2 + below(3);
  recurrent.tap_weights = recurrent.rate_bias = recurrent.norm = recurrent.direct = weights;
  recurrent.tap_bias = below(2) == 0 ? weights : nullptr;
  recurrent.rates = kDecays;
  recurrent.channels = 32 * (1 + below(3));
  recurrent.eps = 1e-5f;
  if (recurrent.kind != kShortConvolution) {
    recurrent.key_heads = 1 << below(3);
    recurrent.value_heads = 16;
    recurrent.key_dim = 32 * (1 + below(2));
    recurrent.value_dim = 32 * (1 + below(4));
    recurrent.tiled = below(2);
    recurrent.channels = 2 * recurrent.key_heads * recurrent.key_dim + recurrent.value_heads * recurrent.value_dim;
  }
  return recurrent;
}

}  // namespace

// A small random decoder: rows computed together, cut and alone, on any number of threads, are the same bits. Those of an
// image have their embeddings already, see each other and are not cut.
void test_decoder() {
  const int hidden = 32 * (1 + below(3));
  const bool is_latent = below(3) == 0;
  const int value_dim = 32 * (1 + below(2));
  const int head_dim = value_dim + (is_latent ? 32 : 0);
  const int kv_heads = is_latent ? 1 : 1 + below(2);
  const int heads = kv_heads * (1 + below(3));
  const int intermediate = 32 * (1 + below(4));
  const int vocabulary = 3 + below(60);
  const bool post_norms = below(2) == 0;
  const int32_t types[] = {kFileQ4_1, kFileQ8_0, kFileMXFP4, kFileBF16, kFileF32};
  const auto weight = [&](int rows, int columns) { return std::make_unique<Packed>(types[below(5)], rows, columns); };
  std::vector<std::unique_ptr<Packed>> kept;
  const auto matrix = [&](int rows, int columns) {
    kept.push_back(weight(rows, columns));
    return kept.back()->matrix;
  };
  const std::vector<float> norm = floats(16384);
  const std::vector<float> frequencies = floats(head_dim / 2);
  std::vector<int32_t> axes(head_dim / 2);
  for (int32_t& axis : axes) axis = below(3);
  const int stacked_layers = below(2);
  const bool parallel = !post_norms && below(2) == 0;
  const bool before = !post_norms || below(2) == 0;
  const bool gated = !is_latent && below(3) == 0;
  Layer layers[2] = {};
  for (Layer& layer : layers) {
    layer.attention_norm = before ? norm.data() : nullptr;
    layer.mlp_norm = before && !parallel ? norm.data() : nullptr;
    layer.sinks = below(2) == 0 ? norm.data() : nullptr;
    layer.query_norm = layer.key_norm = below(2) == 0 ? norm.data() : nullptr;
    layer.post_attention_norm = layer.post_mlp_norm = post_norms ? norm.data() : nullptr;
    layer.inputs[0] = matrix((gated ? 2 : 1) * heads * head_dim, hidden);
    layer.inputs[1] = matrix(kv_heads * head_dim, hidden);
    layer.inputs[2] = matrix(kv_heads * head_dim, hidden);
    layer.output = matrix(hidden, heads * head_dim);
    layer.gate = matrix(intermediate, hidden);
    layer.up = matrix(intermediate, hidden);
    layer.down = matrix(hidden, intermediate);
    layer.window = below(2) * 5;
    layer.rope = below(2) - 1;
  }
  Latent latent{norm.data(), nullptr, {}, {}, {}, 1e-6f};
  if (is_latent) {
    const int plain = 32 * (1 + below(2));
    const int made = 32 * (1 + below(2));
    const int query_rows = heads * (plain + head_dim - value_dim);
    latent.keys = matrix(heads * value_dim, plain);
    latent.values = matrix(heads * made, value_dim);
    if (below(2) == 0) {
      latent.query_norm = norm.data();
      latent.queries = matrix(query_rows, 64);
    }
    for (Layer& layer : layers) {
      layer.latent = &latent;
      layer.inputs[0] = matrix(head_dim, hidden);
      layer.inputs[1] = matrix(latent.query_norm == nullptr ? query_rows : 64, hidden);
      layer.inputs[2] = {};
      layer.output = matrix(hidden, heads * made);
    }
  }
  const Recurrent recurrent = random_recurrence(norm.data());
  if (!is_latent && below(2) == 0) {
    Layer& layer = layers[below(2)];
    layer.recurrent = &recurrent;
    for (Matrix& input : layer.inputs) input = {};
    if (recurrent.kind == kShortConvolution) {
      layer.inputs[0] = matrix(3 * recurrent.channels, hidden);
      layer.output = matrix(hidden, recurrent.channels);
    } else if (recurrent.kind == kMamba2) {
      const int width = recurrent.value_heads * recurrent.value_dim;
      layer.inputs[0] = matrix(width + recurrent.channels + recurrent.value_heads, hidden);
      layer.output = matrix(hidden, width);
    } else {
      const int values = recurrent.value_heads * recurrent.value_dim;
      layer.inputs[0] = matrix(recurrent.channels, hidden);
      layer.inputs[1] = matrix(values, hidden);
      layer.inputs[2] = layer.inputs[3] = matrix(recurrent.value_heads, hidden);
      layer.output = matrix(hidden, values);
    }
  }
  const Routing routing = random_routing();
  const int shared = 32 * (1 + below(3));
  const bool sparse = !post_norms && below(2) == 0;
  Experts experts[2] = {};
  std::vector<Matrix> stacks[2][3];
  for (int index = 0; sparse && index < 2; index++) {
    if (below(4) == 0) continue;
    Layer& layer = layers[index];
    for (int expert = 0; expert < routing.count; expert++) {
      stacks[index][0].push_back(matrix(routing.width, hidden));
      stacks[index][1].push_back(matrix(routing.width, hidden));
      stacks[index][2].push_back(matrix(hidden, routing.width));
    }
    kept.push_back(std::make_unique<Packed>(kFileF32, routing.count, hidden));
    experts[index] = {kept.back()->matrix,      below(2) == 0 ? nullptr : norm.data(), stacks[index][0].data(),
                      stacks[index][1].data(), stacks[index][2].data(),               below(2) == 0 ? nullptr : norm.data()};
    layer.experts = &experts[index];
    const bool beside = below(2) == 0;
    layer.gate = beside ? matrix(shared, hidden) : Matrix{};
    layer.up = beside ? matrix(shared, hidden) : Matrix{};
    layer.down = beside ? matrix(hidden, shared) : Matrix{};
  }
  const Rope rope{frequencies.data(), 1.0f, is_latent ? head_dim - value_dim : head_dim, below(2) == 0 ? nullptr : axes.data()};
  const Matrix embedding = matrix(vocabulary, hidden);
  const Decoder decoder{2,    hidden, intermediate, heads, kv_heads, head_dim, vocabulary, below(2), 1e-5f, 1.0f, 0.125f,
                        0.0f, 0.0f,   1,            &rope, layers,   embedding, embedding, norm.data(),
                        below(2), parallel, gated ? below(2) : below(3), gated, sparse ? shared : 0,
                        sparse ? routing : Routing{}, stacked_layers, value_dim};
  const int length = 2 + (below(4) == 0 ? below(600) : below(40));
  std::vector<int32_t> tokens(length);
  std::vector<int32_t> positions(length);
  std::vector<int32_t> sequences(length, 0);
  for (int i = 0; i < length; i++) {
    tokens[i] = below(vocabulary);
    positions[i] = i;
  }
  const int begin = below(length);
  const int end = begin + below(length - begin + 1);
  std::vector<int32_t> seen(length);
  std::fill(tokens.begin() + begin, tokens.begin() + end, -1);
  std::fill(seen.begin() + begin, seen.begin() + end, end);
  const std::vector<float> embedded = floats(static_cast<size_t>(length) * hidden);
  const std::vector<float> stacked = floats(static_cast<size_t>(length) * hidden);
  std::vector<int32_t> axis_positions(3 * static_cast<size_t>(length));
  for (int32_t& position : axis_positions) position = below(length);
  const int block_size = 1 + below(20);
  std::vector<int32_t> blocks(length / block_size + 1);
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = static_cast<int32_t>(blocks.size() - i);
  const int32_t first_block = 0;
  std::vector<float> first;
  for (int threads = 1; threads <= 3; threads++) {
    std::vector<float> tails(kSlots * recurrent.channels * (recurrent.taps - 1));
    std::fill(tails.begin() + tails.size() / kSlots, tails.end(), NAN);
    std::vector<float> matrices(kSlots * recurrent.value_heads * recurrent.key_dim * recurrent.value_dim);
    std::fill(matrices.begin() + matrices.size() / kSlots, matrices.end(), NAN);
    const LayerStates memory[] = {{tails.data(), matrices.data()}, {tails.data(), matrices.data()}};
    int32_t source = 0;
    int32_t target = 1;
    Session session(decoder, block_size, static_cast<int>(blocks.size()) + 1, threads == 2 ? 4 : 4, threads);
    std::vector<float> states = embedded;
    for (int row = 0; row < length;) {
      int count = threads == 1 ? length : 1 + below(length - row);
      if (begin < row + count && row + count < end) count = end - row;
      const Step step{count,         &tokens[row], &positions[row], &sequences[row], blocks.data(),
                      &first_block, nullptr,      nullptr,         &seen[row],        memory,
                      &source,      &target,      &axis_positions[3 * row],
                      &stacked[static_cast<size_t>(row) * stacked_layers * hidden]};
      session.forward(step, &states[static_cast<size_t>(row) * hidden]);
      row += count;
      source = target;
      target = 3 - target;
    }
    source = 0;
    test_wanted(session, Step{length, tokens.data(), positions.data(), sequences.data(), blocks.data(), &first_block,
                              nullptr, nullptr, seen.data(), memory, &source, &target, axis_positions.data(),
                              stacked.data()}, embedded, states, hidden);
    std::vector<float> logits(static_cast<size_t>(length) * vocabulary);
    session.logits(states.data(), length, logits.data());
    states.insert(states.end(), logits.begin(), logits.end());
    if (threads == 1) first = states;
    require(states == first, "equal states however they are computed");
  }
}

}  // namespace kernels
