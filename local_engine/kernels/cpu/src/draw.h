// From a row of logits to a token.
#pragma once

#include <cstdint>

namespace kernels {

// How a row is drawn from. The structure is part of the interface to Python.
struct DrawRule {
  double noise;       // from 0 to below 1
  double top_p;       // 1 is off
  float temperature;  // above 0
  float log_min_p;    // the logarithm of min_p; minus infinity is off
  int32_t top_k;      // 0 is off
  int32_t unused;
};

// The first of the largest logits; `largest` is no number if one of them is none.
int64_t likeliest(const float* logits, int count, float* largest);

// How a row's log-probabilities are told from its logits: logit - largest - log_sum.
struct Normaliser {
  float largest;
  float log_sum;  // of exp(logit - largest) over the row
};

// The row's normaliser, and the `top` largest logits with their tokens, largest first, of equal ones the first token first.
// top: at most `count`. Throws std::bad_alloc.
Normaliser top_logits(const float* logits, int count, int top, float* values, int64_t* tokens);

// The token at which the weights exp((logit - largest) / temperature) of the tokens that the rule keeps, added in the
// order of their ids, first exceed noise times their sum. Cuts are applied in the order top_k, top_p, min_p, and ties at
// a cut are kept. Logits of minus infinity are never drawn; the largest one must be a finite number.
int64_t draw(const float* logits, int count, const DrawRule& rule);

}  // namespace kernels
