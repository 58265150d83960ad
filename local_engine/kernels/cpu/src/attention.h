// Attention of a few neighbouring rows of one sequence, causal but for what they all see, over the pages of one kv head.
#pragma once

#include "buffer.h"
#include "kv_pool.h"

namespace kernels {

struct AttentionTask {
  const float* queries;  // of the first row and the first head that shares the kv head; scaled already
  float* out;            // likewise
  int query_stride;      // floats from a row to the next
  int head_stride;       // and from a head to the next
  int out_stride;
  int out_head_stride;
  int rows;
  int heads;  // that share the kv head
  int kv_head;
  const int32_t* blocks;
  int position;  // of the first row
  int seen;      // positions that all rows see at least, within the window
  int window;    // positions that a row sees, itself included and what is behind it not; 0 is all
  float soft_cap;  // 0 is none
  const float* sinks;  // of each of the heads, a logit that takes part in the softmax and has no value; or null
  const AttentionTask* next;  // whose first keys are asked of memory meanwhile, or null
};

// What one thread needs beside it.
struct AttentionScratch {
  Buffer<float> scores;
  Buffer<uint8_t> queries;  // rounded to what the cache stores
  Buffer<uint8_t> weights;  // likewise
  Buffer<float> total;      // of all spans so far, and of one: see attend_span
  Buffer<float> partial;
};

// Rows that are worth computing at once.
int attention_rows(int heads);

// Spans of 16 pages that begin at multiples of 16 pages, of those that a task's rows see.
int attention_spans(const KvLayout& layout, const AttentionTask& task);

// Floats that hold what attend_span gives of so many queries.
size_t span_floats(int queries, int value_dim);

// One span, `index` of attention_spans: of each query its weighted values, the sum of the weights and the largest score,
// to which weights are relative. Queries and weights are rounded to what the cache stores; scores and sums are float32.
template <class Cache>
void attend_span(const KvLayer& layer, const AttentionTask& task, int index, AttentionScratch& scratch, float* out);

// Adds a span to those before it.
void join_span(int queries, int value_dim, const float* span, float* total);

// Writes to the task's `out` what all spans together give.
void finish_attention(const AttentionTask& task, int value_dim, const float* total);

// All of it. Masked positions weigh exactly 0, and spans do not depend on what rows are computed together, so a row's
// result is the same in any company.
template <class Cache>
void attend(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch);

}  // namespace kernels
