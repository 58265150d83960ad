// How weights are stored: as files have them, and packed for the kernels.
//
// A packed matrix is a row of tiles, each of 16 rows of the weight. Quantised weights are unsigned numbers u in groups
// of 32 columns (16 in kSixBits16); the weight is scale * (u - zero), or scale * u + offset. kFourBitFloats has in their
// place codes of u. A tile holds for each group of 32 columns, one after the other as they are read:
//   numbers   8 sets of 64 bytes: 16 rows of 4 columns, four bits wide in pairs of sets (low and high nibble), with one
//             or two planes of higher bits behind them
//   scales    16 halves, one a row; twice in kSixBits16. In kFourBitFloats 16 bytes b: 2^(b - 127), or 0 of 0
//   offsets   the same, where the format has them
// and is padded to 64 bytes. Dense weights lie column by column, 16 rows each. All instruction sets share this layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernels {

constexpr int kTile = 16;
constexpr int kGroup = 32;

// Packed formats. The numbers are part of the interface to Python.
enum Format : int32_t {
  kFourBits = 0,        // zero 8
  kFourBitsOffset = 1,
  kFourBitFloats = 2,   // zero 16
  kFiveBits = 3,        // zero 16
  kFiveBitsOffset = 4,
  kSixBits16 = 5,       // zero 32, groups of 16
  kEightBits = 6,       // zero 128
  kBfloat16 = 7,
  kFloat16 = 8,
  kFloat32 = 9,
};

// Of the codes of kFourBitFloats, twice the float (a sign, two bits of exponent, one of mantissa), and 16 more.
constexpr uint8_t kDoubledFloats[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

// Types of a file's rows, by the numbers of GGUF's table of types; ours are beyond those.
enum FileType : int32_t {
  kFileF32 = 0,
  kFileF16 = 1,
  kFileQ4_0 = 2,
  kFileQ4_1 = 3,
  kFileQ5_0 = 6,
  kFileQ5_1 = 7,
  kFileQ8_0 = 8,
  kFileQ4_K = 12,
  kFileQ5_K = 13,
  kFileQ6_K = 14,
  kFileBF16 = 30,
  kFileMXFP4 = 39,
  kFileMXFP4Pairs = 1039,  // the same, but a byte's two numbers are neighbours: safetensors' blocks behind their scales
};

constexpr bool is_dense(int32_t format) { return format >= kBfloat16; }
constexpr bool has_offsets(int32_t format) { return format == kFourBitsOffset || format == kFiveBitsOffset; }
constexpr int scales_per_group(int32_t format) { return format == kSixBits16 ? 2 : 1; }
constexpr size_t scale_bytes(int32_t format) { return format == kFourBitFloats ? 1 : 2; }

// Bytes of the numbers of one group of 16 rows.
constexpr size_t number_bytes(int32_t format) {
  return format <= kFourBitFloats ? 256 : format <= kFiveBitsOffset ? 320 : format == kSixBits16 ? 384 : 512;
}

// Bytes of one group of 16 rows with its scales and offsets.
constexpr size_t group_bytes(int32_t format) {
  return number_bytes(format) + (scales_per_group(format) + (has_offsets(format) ? 1 : 0)) * kTile * scale_bytes(format);
}

constexpr size_t tile_bytes(int32_t format, int columns) {
  if (is_dense(format)) return static_cast<size_t>(columns) * kTile * (format == kFloat32 ? 4 : 2);
  return (columns / kGroup * group_bytes(format) + 63) / 64 * 64;
}

// A packed weight [rows, columns], with a bias a row or none. The memory is the caller's.
struct Matrix {
  const uint8_t* data;
  const float* bias;
  int32_t format;
  int32_t rows;
  int32_t columns;
  int32_t unused;

  int tiles() const { return (rows + kTile - 1) / kTile; }
  const uint8_t* tile(int index) const { return data + static_cast<size_t>(index) * tile_bytes(format, columns); }
};

}  // namespace kernels
