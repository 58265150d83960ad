// The kernels on random shapes, as a program of their own: for sanitizers, and for CPUs that are only emulated here.
//
//   kernels_test SEED ROUNDS
//
// Ends with 0 and a checksum of all products and attention results, which is the same for every instruction set.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "attention.h"
#include "draw.h"
#include "kernels_test.h"
#include "multiply.h"

namespace {

using namespace kernels;

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
  const int head_dim = 32 * (1 + below(8));
  const int value_dim = below(2) == 0 ? head_dim : 32 * (1 + below(8));
  const KvLayout layout{1 + below(40), num_layers, 1 + below(2), head_dim, value_dim, sizeof(typename Cache::Item)};
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
  const int kv_head = below(layout.kv_heads);
  const std::vector<float> keys = floats(static_cast<size_t>(length) * head_dim);
  const std::vector<float> values = floats(static_cast<size_t>(length) * value_dim);
  for (int i = 0; i < length; i++)
    layer.write<Cache>(blocks[i / layout.block_size], i % layout.block_size, kv_head, &keys[i * head_dim], &values[i * value_dim]);
  const std::vector<float> queries = floats(static_cast<size_t>(rows) * heads * head_dim);
  std::vector<float> out(static_cast<size_t>(rows) * heads * value_dim);
  const bool by_head = below(2) == 0;
  const int out_stride = by_head ? value_dim : heads * value_dim;
  const int out_head_stride = by_head ? rows * value_dim : value_dim;
  const float cap = below(2) == 0 ? 0.0f : 5.0f;
  std::vector<float> sinks = floats(heads);
  for (float& sink : sinks) sink *= below(3) == 0 ? 200.0f : 4.0f;
  const bool sinking = below(2) == 0;
  const AttentionTask task{queries.data(), out.data(), heads * head_dim, head_dim, out_stride, out_head_stride, rows, heads,
                           kv_head, blocks.data(), length - rows - behind, seen, window, cap,
                           sinking ? sinks.data() : nullptr, nullptr};
  AttentionScratch scratch;
  attend<Cache>(layer, task, scratch);
  fold(out.data(), out.size());
  // In spans, as threads share them, and with another task to look ahead to.
  const std::vector<float> whole = out;
  const size_t size = span_floats(rows * heads, value_dim);
  std::vector<float> spans(size * attention_spans(layout, task));
  AttentionTask ahead = task;
  ahead.next = &task;
  for (int index = 0; index < attention_spans(layout, task); index++)
    attend_span<Cache>(layer, ahead, index, scratch, &spans[size * index]);
  for (int index = 1; index < attention_spans(layout, task); index++)
    join_span(rows * heads, value_dim, &spans[size * index], spans.data());
  finish_attention(task, value_dim, spans.data());
  require(out == whole, "attention in spans");
  const double slack = sizeof(typename Cache::Item) == 4 ? 1e-4 : 0.05;
  for (int query = 0; query < rows * heads; query++) {
    const int position = length - rows - behind + query / heads;
    std::vector<double> total(value_dim);
    double sum = sinking ? std::exp(static_cast<double>(sinks[query % heads])) : 0;
    for (int i = window > 0 ? std::max(0, position + 1 - window) : 0; i < std::max(position + 1, seen); i++) {
      double score = 0;
      for (int d = 0; d < head_dim; d++) score += static_cast<double>(queries[query * head_dim + d]) * keys[i * head_dim + d];
      if (cap != 0.0f) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score);
      sum += weight;
      for (int d = 0; d < value_dim; d++) total[d] += weight * values[i * value_dim + d];
    }
    const size_t at = static_cast<size_t>(query / heads) * out_stride + query % heads * out_head_stride;
    for (int d = 0; d < value_dim; d++)
      require(std::fabs(out[at + d] - total[d] / sum) <= slack, "attention");
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
  test_thread_pool();
  std::printf("%016llx\n", static_cast<unsigned long long>(result));
  return 0;
}
