// A decoder of the Llama family with its weights, and one engine's way through it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "activations.h"
#include "attention.h"
#include "format.h"
#include "kv_pool.h"
#include "recurrent.h"
#include "routing.h"
#include "thread_pool.h"

namespace kernels {

// The structures down to Step are the interface to Python: plain, and mirrored there field by field. Pointers are the
// caller's, and live as long as what is built over them.

// The experts of a layer. Each row is computed by those that the router chooses, and what they give is added weighted.
struct Experts {
  Matrix router;            // [experts, hidden] in float32: to round it would change the choice
  const float* correction;  // added to the experts' scores for the choice alone, or null
  const Matrix* gate;       // [experts]
  const Matrix* up;
  const Matrix* down;
  const float* shared_gate;  // [hidden]: how much of the block beside them a row takes, as a sigmoid's argument; or null
};

// Attention over one compressed vector a position, which all heads share in place of keys and values of their own. What
// would make a head's key of it is applied to the head's query instead, and what makes its value to what the head finds:
// so there is one kv head, whose values are the beginning of its keys and whose ends are a part that turns.
struct Latent {
  const float* norm;        // of compressed vectors
  const float* query_norm;  // of the vectors that queries are made of; null where the layer's inputs are queries
  Matrix queries;           // of all heads, a part that does not turn and one that does; or without rows
  Matrix keys;              // of all heads, one under the other: from a query's first part to a compressed vector
  Matrix values;            // likewise, from what a head finds to its value
  float eps;
};

struct Layer {
  const float* attention_norm;  // null where the residual is read as it is
  const float* query_norm;      // of what QkNorm says, or null
  const float* key_norm;
  const float* sinks;  // a logit of each query head, see AttentionTask; or null
  const float* post_attention_norm;  // of what attention adds to the residual, or null
  const float* mlp_norm;             // as attention_norm
  const float* post_mlp_norm;
  // Of the normed row, side by side: queries, keys and values; of latent attention, compressed vectors with what of keys
  // turns, then queries or what they are made of; or a recurrent layer's. Others have no rows.
  Matrix inputs[4];
  Matrix output, gate, up, down;
  int32_t window;  // 0 is none
  int32_t rope;    // which of the decoder's, -1 where nothing turns
  const Recurrent* recurrent;  // in place of attention; or null
  const Latent* latent;        // of such attention; or null
  const Experts* experts;  // or null; with them gate, up and down are of a block beside them, without rows where is none

  int input_width() const {
    return kTile * std::accumulate(std::begin(inputs), std::end(inputs), 0,
                                   [](int tiles, const Matrix& matrix) { return tiles + matrix.tiles(); });
  }
};

struct Rope {
  const float* frequencies;  // [rotary / 2] radians a position
  float length;              // of a turned vector, relative
  int32_t rotary;            // leading dimensions of a head that turn, a multiple of 32
  const int32_t* axes;       // of each frequency, by which of a position's three axes it turns; or null
};

// How queries and keys are normed: head by head before they turn, or after it, or all heads as one vector.
enum QkNorm : int32_t { kHeads = 0, kTurnedHeads = 1, kRow = 2 };

struct Decoder {
  int32_t num_layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
  int32_t activation;
  float eps;
  float embedding_scale;
  float score_scale;
  float score_cap;   // 0 is none
  float logits_cap;  // 0 is none
  int32_t num_ropes;
  const Rope* ropes;
  const Layer* layers;
  Matrix embedding, head;
  const float* norm;
  int32_t centred;   // norms subtract the mean first
  int32_t parallel;  // the feed-forward block reads what attention reads
  int32_t qk_norm;
  int32_t attention_gate;  // each query head has the gate of what it reads behind it
  int32_t shared;  // the width of blocks beside experts
  Routing routing;
  int32_t stacked_layers;  // behind so many of the first, rows of images get something added; fewer than all
  int32_t value_dim;       // of what a head finds: head_dim, or less of latent attention

  bool is_latent() const { return value_dim != head_dim; }  // attention, in all layers that have it
  int query_stride() const { return attention_gate != 0 ? 2 * head_dim : head_dim; }  // from a head to the next
  KvLayout kv_layout(int block_size, int cache_bytes) const {
    const auto caching = std::count_if(layers, layers + num_layers,
                                       [](const Layer& layer) { return layer.recurrent == nullptr; });
    return {block_size, static_cast<int>(caching), kv_heads, head_dim, value_dim, cache_bytes};
  }
};

// What an adapter adds to one product: up (down x). No rank: nothing.
struct LowRank {
  const float* down;  // [rank][columns]
  const float* up;    // [rank][rows]: transposed
  int32_t rank;
};

struct AdaptedLayer {
  LowRank qkv, output, gate_up, down;  // a layer's inputs side by side; likewise gate and up
  LowRank queries;                     // of latent attention, where they are made of a compressed vector
};

// Rows of one step: consecutive ones of a sequence stand side by side.
struct Step {
  int32_t num_rows;
  const int32_t* tokens;  // -1 where `hidden` holds a row's embedding already, as an image's rows do
  const int32_t* positions;
  const int32_t* sequences;     // of each row, an index into first_block
  const int32_t* blocks;        // the block lists of all sequences, one after the other
  const int32_t* first_block;   // where each begins
  const AdaptedLayer* const* adapters;  // of each row its adapter's layers, or null; null where no row has one
  const uint8_t* wanted;  // of each row whether its state is asked for, and not only its keys and values; null: of all
  const int32_t* seen;    // of each row how many positions it sees beside those up to its own; null: none does
  const LayerStates* states;  // of each layer; null where none is recurrent
  const int32_t* sources;     // of each sequence, the slot of the state behind the rows before
  const int32_t* targets;     // likewise, of the state behind its rows here
  const int32_t* axis_positions;  // [num_rows][3]: by time, height and width, for ropes that have axes; null: as `positions`
  const float* stacked;  // [num_rows][stacked_layers][hidden]: what is added; or null

  int32_t block_of(int row, int block_size) const {
    return blocks[first_block[sequences[row]] + positions[row] / block_size];
  }
  int32_t seen_by(int row) const { return seen == nullptr ? 0 : seen[row]; }
};

// Owns the KV pool, the threads and all memory that a step needs. Not thread-safe.
class Session {
 public:
  // cache_bytes: 4 for float32, 2 for bfloat16. Throws std::bad_alloc.
  Session(const Decoder& decoder, int block_size, int num_blocks, int cache_bytes, int threads);

  // hidden [num_rows][hidden]: the states before the last norm, of rows that are wanted. Rows that see those behind them
  // come with these.
  void forward(const Step& step, float* hidden);

  // Copies whole KV blocks in every layer, pairs of (from, to), as if all were read before any is written.
  void copy_blocks(const int32_t* pairs, int count);

  // logits [count][vocabulary] of `count` rows of hidden states.
  void logits(const float* hidden, int count, float* logits);

  // Gets a piece of the pool from the system before a step needs it; false where enough of it is there.
  bool touch_ahead();

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  // Rows that go through gate and up: those of `x` from `from` on become those of `gated` from `to` on.
  struct Gating {
    const Matrix& gate;
    const Matrix& up;
    const Activations& x;
    int from;
    Activations& gated;
    int to;
    int rows;                // kRowBlock at most
    const float* additions;  // of adapters to gate and up side by side, or null
    const float* factors;    // of what comes out, one a row, or null
    float slope = 0.0f;      // of clamped units
    float limit = 0.0f;      // likewise, 0 of others
  };
  // Rows that chose an expert, a block of them: they lie side by side, ordered by expert.
  struct ExpertRows {
    int expert;
    int first;
    int rows;
  };

  size_t end_of(int32_t block) const { return layout_.block_bytes() * (static_cast<size_t>(block) + 1); }
  void touch(size_t end);
  void touch_piece(size_t begin);
  int part_rows(const Step& step, int first) const;
  void forward_part(const Step& step, float* hidden);
  template <class Cache>
  void run_step(const Step& step, float* hidden);
  int find_wanted(const Step& step);
  Step only_wanted(const Step& step, float* hidden);
  void logits_part(const float* hidden, int count, float* logits);
  void prepare_rotations(const Step& step);
  size_t first_angle(const Layer& layer, const Step& step, int row) const;
  void find_runs(const Step& step);
  void find_state_runs(const Step& step);
  void embed(Team& team, const Step& step, float* hidden);
  void add_stacked(Team& team, const Step& step, int index, float* hidden);
  template <class Cache>
  void begin_layer(Team& team, const Step& step, int index, float* hidden);
  template <class Cache>
  void write_keys(Team& team, const Step& step, int index);
  template <class Cache>
  void write_latents(Team& team, const Step& step, int index);
  void reserve_heads(int rows);
  void make_queries(Team& team, const Step& step, int index);
  void make_values(Team& team, int rows, const Latent& latent);
  void turn_pairs(const Layer& layer, const Step& step, int row, float* x);
  void project_heads(Team& team, int rows, const Matrix& matrix, const Activations& x, float* out, int head_stride);
  void recur(Team& team, const Step& step, int index);
  template <class Cache>
  void finish_layer(Team& team, const Step& step, int index, float* hidden);
  void normalise(Team& team, int rows, float* hidden, const float* addition_norm, const float* norm, bool reads);
  void norm_row(const float* x, const float* weight, float* out) const;
  void project(Team& team, int rows, const Matrix* parts, int tiles, const Activations& x, float* out, int stride);
  void project_back(Team& team, int rows, const Matrix& matrix, const Activations& x, float* hidden, bool add);
  void feed_forward(Team& team, const Step& step, int index, const float* factors, float* out, bool add);
  void gate(Team& team, const Step& step, int index, const float* factors, Activations& gated);
  void gate_groups(const Gating& gating, int first, int last);
  void reserve_experts(int rows);
  void route(Team& team, int rows, const Experts& experts);
  void group_rows(int rows);
  void add_experts(Team& team, int rows, const Experts& experts, float* hidden);
  void add_expert(const Matrix& down, const ExpertRows& some, int first, int last, float* hidden);
  void adapt(Team& team, const Step& step, int index, LowRank AdaptedLayer::*site, const Activations& x, float* out,
             int width);
  template <class Cache>
  void write_row(const Layer& layer, const KvLayer& cache, const Step& step, int row, int first_head, int last_head);
  int most_queries() const;
  void choose_spans(const Step& step);
  AttentionTask attention_task(const Layer& layer, const Step& step, int item, const AttentionTask* next);
  float* queries_of(const Layer& layer, int row);
  int query_width(const Layer& layer) const;
  void gate_attended(const AttentionTask& task);
  void quantise_attended(const AttentionTask& task);
  template <class Cache>
  void attend_whole(const Layer& layer, const KvLayer& cache, const Step& step, int item, const AttentionTask* next,
                    AttentionScratch& scratch);
  template <class Cache>
  void attend_runs(Team& team, const Layer& layer, const KvLayer& cache, const Step& step);
  void coarse_logits(int first_tile, int last_tile, int count, float* largest, float* logits);
  void refine_logits(int first_tile, int last_tile, int row, float floor, float* logits);
  simd::Floats store_logits(int tile, const float* results, float* logits) const;
  float* row_logits(float* logits, int row) const;

  const Decoder decoder_;
  const KvLayout layout_;
  ThreadPool pool_;
  std::unique_ptr<uint8_t, Free> memory_;
  size_t pool_bytes_ = 0;
  size_t used_ = 0;     // of the pool, up to the last block that was written
  size_t touched_ = 0;  // of the pool, in whole pieces: what is behind it nobody has written
  std::vector<KvLayer> caches_;  // of each layer; those of recurrent ones stand for nothing

  struct Run {
    int row;
    int rows;
  };
  std::vector<int> wanted_;  // rows of a step, and what a step of these alone has
  std::vector<int32_t> wanted_positions_, wanted_sequences_, wanted_seen_;
  std::vector<const AdaptedLayer*> wanted_adapters_;
  std::vector<Run> runs_;  // rows of one sequence that attend together
  int head_groups_ = 0;    // of each run, which threads attend apart: kv heads, or more where latent attention lacks runs
  std::vector<StateRun> state_runs_;
  std::vector<int32_t> sources_;  // as a step's, for what of it is still to be computed
  bool lone_ = false;      // a step of one row: who attends with a head writes its keys first
  int spans_ = 1;          // into which their attention is cut for the threads
  Buffer<float> spanned_;  // what each gives, [runs][kv heads][spans]
  const bool reads_floats_;
  int projected_width_;
  int mixed_width_ = 0;
  // Normed and gated rows are kept as floats, which a product or an adapter reads. Else these pass through memory that
  // stays in the first cache.
  bool keeps_floats_ = false;
  bool keeps_normed_ = false;  // the same of normed rows alone, which routers read too
  Activations normed_, attended_, mixed_, gated_;  // mixed: what recurrent layers and latent attention give
  Activations compressed_queries_, plain_queries_;  // of latent attention
  Buffer<float> latent_queries_;                    // [rows][heads][head_dim]
  Activations last_coarse_, last_fine_;  // the same rows
  Buffer<float> largest_;                // logits of each row that each thread has seen: [threads][rows]
  Buffer<float> projected_;  // a layer's inputs, multiplied; or what is added to the residual after a norm of its own
  Buffer<float> cosines_, sines_;
  Buffer<float> additions_;  // of adapters to gate and up
  Buffer<uint8_t> copied_;
  Activations beside_;            // gated rows of blocks beside experts
  Buffer<float> shared_factors_;  // of each row, what its gate says of such a block
  Buffer<float> router_;          // of each row logits, scores and scratch
  Buffer<Choice> choices_;        // [rows][per_token]
  // What follows is of pairs of a row and an expert, ordered by expert.
  std::vector<ExpertRows> expert_rows_;
  Buffer<int32_t> expert_places_;  // of each expert, the next of its places
  Buffer<int32_t> pair_rows_;
  Buffer<float> pair_shares_;
  Activations gathered_, expert_gated_;
  std::vector<std::unique_ptr<AttentionScratch>> scratches_;
};

}  // namespace kernels
