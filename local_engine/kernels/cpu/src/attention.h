// Causal attention of a few neighbouring rows of one sequence over the pages of one kv head.
#pragma once

#include "buffer.h"
#include "kv_pool.h"

namespace kernels {

struct AttentionTask {
  const float* queries;  // of the first row and the first head that shares the kv head; scaled already
  float* out;            // likewise
  int query_stride;      // floats from a row to the next
  int out_stride;
  int rows;
  int heads;  // that share the kv head
  int kv_head;
  const int32_t* blocks;
  int position;  // of the first row
  int window;    // positions that a row sees, itself included; 0 is all
  float soft_cap;  // 0 is none
};

// What one thread needs beside it.
struct AttentionScratch {
  Buffer<float> scores;
  Buffer<float> totals;   // weighted values so far, a query after the other
  Buffer<float> partial;  // the same of one span
  Buffer<float> weights;  // sums of weights
  Buffer<float> largest;
};

// Rows that are worth computing at once.
int attention_rows(int heads);

// Online softmax over spans of 16 pages that begin at multiples of 16 pages, whatever rows are computed together: masked
// positions weigh exactly 0, so a row's result is the same in any company. Scores and sums are float32.
template <class Cache>
void attend(const KvLayer& layer, const AttentionTask& task, AttentionScratch& scratch);

}  // namespace kernels
