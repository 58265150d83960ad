// Which experts compute a row, and how much of each it takes.
#pragma once

#include <cstdint>

namespace kernels {

// The experts of a decoder's layers, and how they are chosen: plain, and mirrored in Python. All 0: there are none.
struct Routing {
  int32_t count, per_token;
  int32_t width;       // of an expert inside
  int32_t sigmoid;     // scores are sigmoids of logits, not their shares of all
  int32_t normalised;  // the chosen ones' scores are made to add up to 1
  int32_t groups;      // the choice is among `used_groups` of so many, those with the best experts
  int32_t used_groups;
  float scale;  // of the chosen ones' shares
  float slope, limit;  // of experts' units: see clamped_unit. No limit: they are as other blocks'
};

struct Choice {
  int32_t expert;
  float share;
};

// Of `count` experts, as the memory beside them is laid out.
constexpr int padded_experts(int count) { return (count + 15) / 16 * 16; }

// The per_token experts with the largest logits, or the largest scores plus corrections, the first of equal ones; by
// index. Groups are judged by the best of their experts, with corrections by the two best. A row of what are no numbers
// gets experts all the same.
//
// memory: three times padded_experts; the logits come first and are overwritten.
void choose_experts(const Routing& routing, const float* correction, float* memory, Choice* chosen);

}  // namespace kernels
