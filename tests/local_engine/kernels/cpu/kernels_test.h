// What the kernels' tests share: random shapes and weights, and what is required of results.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "buffer.h"
#include "half.h"
#include "pack.h"
#include "routing.h"

namespace kernels {

inline std::mt19937 random_bits;
inline uint64_t checksum = 14695981039346656037u;

inline int below(int bound) { return static_cast<int>(random_bits() % static_cast<uint32_t>(bound)); }
inline float uniform() { return static_cast<float>(random_bits() % 65536u) / 32768.0f - 1.0f; }

inline void fold(const float* values, size_t count) {
  for (size_t i = 0; i < count; i++) checksum = (checksum ^ bits_of(values[i])) * 1099511628211u;
}

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

inline std::vector<float> floats(size_t count) {
  std::vector<float> result(count);
  for (float& value : result) value = uniform();
  return result;
}

inline bool is_mxfp4(int32_t type) { return type == kFileMXFP4 || type == kFileMXFP4Pairs; }
inline bool has_wide_blocks(int32_t type) { return type == kFileQ4_K || type == kFileQ5_K || type == kFileQ6_K; }

// Rows of any bits, with scales of ordinary sizes.
inline std::vector<uint8_t> file_rows(int32_t type, int rows, int columns) {
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

// Experts that are chosen in any of the ways.
inline Routing random_routing() {
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

// See decoder_test.cpp.
void test_decoder();
// See thread_pool_test.cpp.
void test_thread_pool();

}  // namespace kernels
