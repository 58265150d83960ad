// y = W x for one tile of 16 rows of W and any number of rows of activations.
#pragma once

#include "activations.h"
#include "format.h"

namespace kernels {

// out [count][16]: tile `tile` of the matrix times rows first to first + count - 1, plus the bias.
//
// For each group of 32 columns in order: the dot products of 16 whole numbers, exact; each times the activations' scale,
// the second added to the first; times the weight's scale, added with one rounding; then offset times sum likewise.
// Dense weights add even and odd columns apart.
// Nothing depends on `count`, so a row's result is the same in any company.
void multiply(const Matrix& matrix, int tile, const Activations& x, int first, int count, float* out);

}  // namespace kernels
