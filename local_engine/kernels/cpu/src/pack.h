// From a file's rows to packed tiles, and back to single rows.
#pragma once

#include "format.h"

namespace kernels {

// The packed format of a file's type; -1 for a type that is not known.
int32_t packed_format(int32_t file_type);

// Bytes of one row in a file; -1 for an unknown type or a number of columns that the type cannot have.
int64_t file_row_bytes(int32_t file_type, int columns);

// Packs `count` rows of a file, the first a multiple of 16 in the matrix, to the tiles at `out`. Missing rows of the last
// tile become 0.
void pack_rows(int32_t file_type, const uint8_t* rows, int count, int columns, uint8_t* out);

// Rounds dense rows (F32, F16, BF16) to rows of Q8_0 or Q4_1, `to`. columns: a multiple of 32.
void quantise_rows(int32_t from, const uint8_t* rows, int count, int columns, int32_t to, uint8_t* out);

// One row of a packed matrix as floats.
void unpack_row(const Matrix& matrix, int row, float* out);

}  // namespace kernels
