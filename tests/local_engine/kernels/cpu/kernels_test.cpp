// The kernels on random shapes, as a program of their own: for sanitizers, and for CPUs that are only emulated here.
//
//   kernels_test SEED ROUNDS
//
// Ends with 0 and a checksum of all products and attention results, which is the same for every instruction set.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "decoder.h"
#include "draw.h"
#include "half.h"
#include "multiply.h"
#include "pack.h"

namespace {

using namespace kernels;

std::mt19937 random_bits;
uint64_t checksum = 14695981039346656037u;

int below(int bound) { return static_cast<int>(random_bits() % static_cast<uint32_t>(bound)); }
float uniform() { return static_cast<float>(random_bits() % 65536u) / 32768.0f - 1.0f; }

void fold(const float* values, size_t count) {
  for (size_t i = 0; i < count; i++) checksum = (checksum ^ bits_of(values[i])) * 1099511628211u;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

std::vector<float> floats(size_t count) {
  std::vector<float> result(count);
  for (float& value : result) value = uniform();
  return result;
}

bool is_mxfp4(int32_t type) { return type == kFileMXFP4 || type == kFileMXFP4Pairs; }
bool has_wide_blocks(int32_t type) { return type == kFileQ4_K || type == kFileQ5_K || type == kFileQ6_K; }

// Rows of any bits, with scales of ordinary sizes.
std::vector<uint8_t> file_rows(int32_t type, int rows, int columns) {
  std::vector<uint8_t> result(static_cast<size_t>(file_row_bytes(type, columns)) * rows);
  for (uint8_t& byte : result) byte = static_cast<uint8_t>(random_bits());
  const auto put = [&](size_t at, float value) {
    const uint16_t half = to_half(value);
    std::memcpy(&result[at], &half, 2);
  };
  const int blocks = type == kFileF32 || type == kFileF16 || type == kFileBF16 ? 0 : columns / (has_wide_blocks(type) ? 256 : 32);
  const size_t block_bytes = blocks == 0 ? 0 : file_row_bytes(type, columns) / blocks;
  for (size_t at = 0; blocks > 0 && at < result.size(); at += block_bytes) {
    if (is_mxfp4(type)) {
      result[at] = static_cast<uint8_t>(116 + below(8));
      continue;
    }
    put(at + (type == kFileQ6_K ? 208 : 0), 0.01f * (1.1f + uniform()));
    if (type == kFileQ4_1 || type == kFileQ5_1 || type == kFileQ4_K || type == kFileQ5_K) put(at + 2, 0.01f * uniform());
  }
  if (blocks == 0) {
    for (int i = 0; i < rows * columns; i++) {
      const float value = 0.1f * uniform();
      const uint16_t half = type == kFileF16 ? to_half(value) : to_bfloat(value);
      if (type == kFileF32) std::memcpy(&result[i * 4], &value, 4);
      else std::memcpy(&result[i * 2], &half, 2);
    }
  }
  return result;
}

// A packed matrix that owns its memory.
struct Packed {
  Buffer<uint8_t> memory;
  Matrix matrix;

  Packed(int32_t type, int rows, int columns) {
    const std::vector<uint8_t> stored = file_rows(type, rows, columns);
    matrix = {nullptr, nullptr, packed_format(type), rows, columns, 0};
    memory.reserve(tile_bytes(matrix.format, columns) * matrix.tiles());
    pack_rows(type, stored.data(), rows, columns, memory.data());
    matrix.data = memory.data();
  }
};

constexpr int32_t kTypes[] = {kFileF32,  kFileF16,  kFileBF16, kFileQ4_0, kFileQ4_1, kFileQ5_0,
                              kFileQ5_1, kFileQ8_0, kFileQ4_K, kFileQ5_K, kFileQ6_K, kFileMXFP4, kFileMXFP4Pairs};

void test_products() {
  const int32_t type = kTypes[below(std::size(kTypes))];
  const int rows = 1 + below(70);
  const int columns = (1 + below(9)) * (has_wide_blocks(type) ? 256 : 32);
  const int count = 1 + below(21);
  const Packed packed(type, rows, columns);
  Activations x;
  x.columns = columns;
  x.fine = below(2) == 1;
  x.reserve(count, columns, count);
  for (int row = 0; row < count; row++) {
    for (int i = 0; i < columns; i++) x.row(row)[i] = uniform() * (below(40) == 0 ? 20.0f : 1.0f);
    x.quantise(row, 0, columns);
  }
  std::vector<float> out(static_cast<size_t>(count) * kTile);
  std::vector<float> weights(columns);
  for (int tile = 0; tile < packed.matrix.tiles(); tile++) {
    multiply(packed.matrix, tile, x, 0, count, out.data());
    fold(out.data(), out.size());
    for (int lane = 0; lane < kTile && tile * kTile + lane < rows; lane++) {
      unpack_row(packed.matrix, tile * kTile + lane, weights.data());
      for (int row = 0; row < count; row++) {
        double exact = 0;
        double slack = 1e-4;
        for (int i = 0; i < columns; i++) {
          exact += static_cast<double>(weights[i]) * x.row(row)[i];
          slack += std::fabs(weights[i]) * (is_dense(packed.matrix.format) ? 1e-5 : x.scales.data()[(row * columns + i) / 16]);
        }
        require(std::fabs(out[row * kTile + lane] - exact) <= slack, "a product");
      }
    }
  }
}

// One head's attention against a plain one in double precision.
template <class Cache>
void test_attention() {
  const int num_layers = 1 + below(3);
  const KvLayout layout{1 + below(40), num_layers, 1 + below(2), 32 * (1 + below(8)), sizeof(typename Cache::Item)};
  const int heads = 1 + below(5);
  const int length = 1 + below(600);
  const int rows = 1 + below(std::min(length, 8));
  const int behind = below(2) == 0 ? 0 : below(std::min(40, length - rows + 1));  // what rows see though it is behind them
  const int seen = behind == 0 && below(2) == 0 ? 0 : length;
  const int window = below(3) == 0 ? 1 + below(length) : 0;
  const int num_blocks = length / layout.block_size + 2;
  Buffer<uint8_t> memory;
  memory.reserve(layout.block_bytes() * num_blocks);
  std::fill(memory.data(), memory.data() + layout.block_bytes() * num_blocks, 0xff);  // no number anywhere
  const KvLayer layer(layout, memory.data() + below(num_layers) * layout.layer_bytes());
  std::vector<int32_t> blocks(num_blocks);
  for (int i = 0; i < num_blocks; i++) blocks[i] = num_blocks - 1 - i;
  const int head_dim = layout.head_dim;
  const int kv_head = below(layout.kv_heads);
  const std::vector<float> keys = floats(static_cast<size_t>(length) * head_dim);
  const std::vector<float> values = floats(static_cast<size_t>(length) * head_dim);
  for (int i = 0; i < length; i++)
    layer.write<Cache>(blocks[i / layout.block_size], i % layout.block_size, kv_head, &keys[i * head_dim], &values[i * head_dim]);
  const std::vector<float> queries = floats(static_cast<size_t>(rows) * heads * head_dim);
  std::vector<float> out(queries.size());
  const float cap = below(2) == 0 ? 0.0f : 5.0f;
  std::vector<float> sinks = floats(heads);
  for (float& sink : sinks) sink *= below(3) == 0 ? 200.0f : 4.0f;
  const bool sinking = below(2) == 0;
  const AttentionTask task{queries.data(), out.data(), heads * head_dim, head_dim, heads * head_dim, rows, heads, kv_head,
                           blocks.data(), length - rows - behind, seen, window, cap, sinking ? sinks.data() : nullptr,
                           nullptr};
  AttentionScratch scratch;
  attend<Cache>(layer, task, scratch);
  fold(out.data(), out.size());
  // In spans, as threads share them, and with another task to look ahead to.
  const std::vector<float> whole = out;
  const size_t size = span_floats(rows * heads, head_dim);
  std::vector<float> spans(size * attention_spans(layout, task));
  AttentionTask ahead = task;
  ahead.next = &task;
  for (int index = 0; index < attention_spans(layout, task); index++)
    attend_span<Cache>(layer, ahead, index, scratch, &spans[size * index]);
  for (int index = 1; index < attention_spans(layout, task); index++)
    join_span(rows * heads, head_dim, &spans[size * index], spans.data());
  finish_attention(task, head_dim, spans.data());
  require(out == whole, "attention in spans");
  const double slack = sizeof(typename Cache::Item) == 4 ? 1e-4 : 0.05;
  for (int query = 0; query < rows * heads; query++) {
    const int position = length - rows - behind + query / heads;
    std::vector<double> total(head_dim);
    double sum = sinking ? std::exp(static_cast<double>(sinks[query % heads])) : 0;
    for (int i = window > 0 ? std::max(0, position + 1 - window) : 0; i < std::max(position + 1, seen); i++) {
      double score = 0;
      for (int d = 0; d < head_dim; d++) score += static_cast<double>(queries[query * head_dim + d]) * keys[i * head_dim + d];
      if (cap != 0.0f) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score);
      sum += weight;
      for (int d = 0; d < head_dim; d++) total[d] += weight * values[i * head_dim + d];
    }
    for (int d = 0; d < head_dim; d++)
      require(std::fabs(out[query * head_dim + d] - total[d] / sum) <= slack, "attention");
  }
}

// A token is drawn from any row of which one logit is finite, and it is such a one.
void test_draw() {
  const int count = 1 + below(3000);
  std::vector<float> logits = floats(count);
  for (float& logit : logits) logit = below(3) == 0 ? -INFINITY : logit * 8.0f;
  logits[below(count)] = 1.0f;
  const DrawRule rule{(uniform() + 1.0) / 2.0,
                      below(2) == 0 ? 1.0 : 0.5,
                      0.01f + uniform() + 1.0f,
                      below(2) == 0 ? -INFINITY : -2.0f,
                      below(3) * below(60),
                      0};
  const int64_t token = draw(logits.data(), count, rule);
  require(token >= 0 && token < count && std::isfinite(logits[token]), "a draw");
  float largest = 0;
  const int64_t best = likeliest(logits.data(), count, &largest);
  require(logits[best] == largest && largest == *std::max_element(logits.begin(), logits.end()), "the likeliest");
  const int top = below(std::min(count, 30) + 1);
  std::vector<float> values(top);
  std::vector<int64_t> tokens(top);
  const Normaliser normaliser = top_logits(logits.data(), count, top, values.data(), tokens.data());
  require(normaliser.largest == largest && normaliser.log_sum >= -1e-5f, "a normaliser");
  std::vector<int> order(count);
  for (int i = 0; i < count; i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (int i = 0; i < top; i++) require(tokens[i] == order[i] && values[i] == logits[order[i]], "the top logits");
}

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

// Experts that are chosen in any of the ways.
Routing random_routing() {
  Routing routing{};
  routing.groups = 1 + below(3);
  routing.used_groups = 1 + below(routing.groups);
  routing.count = routing.groups * (2 + below(9));
  routing.per_token = 1 + below(std::min(4, routing.count / routing.groups * routing.used_groups));
  routing.width = 32 * (1 + below(3));
  routing.sigmoid = below(2);
  routing.normalised = below(2);
  routing.scale = 1.5f;
  routing.slope = 1.702f;
  routing.limit = below(2) == 0 ? 0.0f : 0.5f;
  return routing;
}

// Those of each row are as many as it takes, each there once, in order; of any logits.
void test_choice() {
  const Routing routing = random_routing();
  const std::vector<float> correction = floats(routing.count);
  std::vector<float> memory(3 * padded_experts(routing.count));
  const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f};
  for (float& logit : memory) logit = below(3) == 0 ? odd[below(4)] : 4.0f * uniform();
  std::vector<Choice> chosen(routing.per_token);
  choose_experts(routing, below(2) == 0 ? nullptr : correction.data(), memory.data(), chosen.data());
  for (int i = 0; i < routing.per_token; i++)
    require(chosen[i].expert > (i == 0 ? -1 : chosen[i - 1].expert) && chosen[i].expert < routing.count, "a choice");
}

// A small random decoder: rows computed together, cut and alone, on any number of threads, are the same bits. Those of an
// image have their embeddings already, see each other and are not cut.
void test_decoder() {
  const int hidden = 32 * (1 + below(3));
  const int head_dim = 32 * (1 + below(2));
  const int kv_heads = 1 + below(2);
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
  const bool gated = below(3) == 0;
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
  const Recurrent recurrent = random_recurrence(norm.data());
  if (below(2) == 0) {
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
  const Rope rope{frequencies.data(), 1.0f, head_dim, below(2) == 0 ? nullptr : axes.data()};
  const Matrix embedding = matrix(vocabulary, hidden);
  const Decoder decoder{2,    hidden, intermediate, heads, kv_heads, head_dim, vocabulary, below(2), 1e-5f, 1.0f, 0.125f,
                        0.0f, 0.0f,   1,            &rope, layers,   embedding, embedding, norm.data(),
                        below(2), parallel, gated ? below(2) : below(3), gated, sparse ? shared : 0,
                        sparse ? routing : Routing{}, stacked_layers};
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

}  // namespace

int main(int count, char** arguments) {
  require(count == 3, "kernels_test SEED ROUNDS");
  random_bits.seed(static_cast<uint32_t>(std::atoi(arguments[1])));
  for (int round = std::atoi(arguments[2]); round > 0; round--) {
    test_products();
    test_attention<SingleCache>();
    test_attention<BfloatCache>();
  }
  const uint64_t result = checksum;
  for (int round = std::atoi(arguments[2]); round > 0; round--) {
    test_draw();
    test_choice();
  }
  for (int round = std::atoi(arguments[2]) / 4; round > 0; round--) test_decoder();
  std::printf("%016llx\n", static_cast<unsigned long long>(result));
  return 0;
}
