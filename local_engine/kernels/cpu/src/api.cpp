// The interface to Python: plain C, called through ctypes, which releases the GIL.

#include <cstring>
#include <new>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "activations.h"
#include "decoder.h"
#include "draw.h"
#include "multiply.h"
#include "pack.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

using namespace kernels;

#if defined(__x86_64__)
// Compilers' own questions for these are younger than the instructions: leaf 7, subleaf 1, bits 4 and 5 of eax.
static unsigned newer_features() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 ? eax : 0;
}
static bool has_avx_vnni() { return (newer_features() >> 4 & 1) != 0; }
static bool has_bfloat_dots() { return (newer_features() >> 5 & 1) != 0; }
#endif

// Counts up with each change of the functions, the structures or the packed layout.
EXPORT int32_t kernels_version() { return 13; }

// Whether this CPU has what the build of that name needs: 1 or 0.
EXPORT int32_t kernels_cpu_runs(const char* instruction_set) {
  const auto is = [instruction_set](const char* name) { return std::strcmp(instruction_set, name) == 0; };
  if (is("portable")) return 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (is("avx2")) return avx2;
  if (is("avx2vnni")) return avx2 && has_avx_vnni();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (is("avx512")) return avx512;
  if (is("avx512bf16")) return avx512 && has_bfloat_dots();
#elif defined(__aarch64__) && defined(__linux__)
  if (is("neon")) return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__)
  if (is("neon")) return 1;  // every Mac with an ARM CPU
#endif
  return 0;
}

EXPORT int32_t kernels_packed_format(int32_t file_type) { return packed_format(file_type); }

EXPORT int64_t kernels_file_row_bytes(int32_t file_type, int32_t columns) { return file_row_bytes(file_type, columns); }

EXPORT int64_t kernels_tile_bytes(int32_t format, int32_t columns) {
  return static_cast<int64_t>(tile_bytes(format, columns));
}

EXPORT void kernels_pack_rows(int32_t file_type, const uint8_t* rows, int32_t count, int32_t columns, uint8_t* out) {
  pack_rows(file_type, rows, count, columns, out);
}

EXPORT void kernels_quantise_rows(int32_t from, const uint8_t* rows, int32_t count, int32_t columns, int32_t to,
                                  uint8_t* out) {
  quantise_rows(from, rows, count, columns, to, out);
}

EXPORT void kernels_unpack_row(const Matrix* matrix, int32_t row, float* out) { unpack_row(*matrix, row, out); }

// out [count][rows rounded up to 16] = x [count][columns] times the matrix, x quantised as fine says. Returns 0, or 1 where memory is short.
EXPORT int32_t kernels_multiply(const Matrix* matrix, const float* x, int32_t count, int32_t fine, float* out) {
  try {
    Activations activations;
    activations.fine = fine != 0;
    activations.columns = matrix->columns;
    activations.reserve(count, (matrix->columns + kGroup - 1) / kGroup * kGroup, count);
    Buffer<float> results;
    results.reserve(static_cast<size_t>(count) * kTile);
    for (int row = 0; row < count; row++) {
      for (int i = 0; i < matrix->columns; i++) activations.row(row)[i] = x[static_cast<size_t>(row) * matrix->columns + i];
      if (!is_dense(matrix->format)) activations.quantise(row, 0, matrix->columns);
    }
    for (int tile = 0; tile < matrix->tiles(); tile++) {
      multiply(*matrix, tile, activations, 0, count, results.data());
      for (int row = 0; row < count; row++)
        for (int lane = 0; lane < kTile; lane++)
          out[(static_cast<size_t>(row) * matrix->tiles() + tile) * kTile + lane] = results.data()[row * kTile + lane];
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// Of rows of logits [count][experts] the chosen experts and their shares [count][per_token], as a step does it.
EXPORT int32_t kernels_choose_experts(const Routing* routing, const float* correction, const float* logits, int32_t count,
                                      Choice* chosen) {
  try {
    Buffer<float> memory;
    memory.reserve(3 * static_cast<size_t>(padded_experts(routing->count)));
    for (size_t row = 0; row < static_cast<size_t>(count); row++) {
      std::memcpy(memory.data(), logits + row * routing->count, routing->count * sizeof(float));
      choose_experts(*routing, correction, memory.data(), chosen + row * routing->per_token);
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// Null where memory is short.
EXPORT Session* kernels_open(const Decoder* decoder, int32_t block_size, int32_t num_blocks, int32_t cache_bytes,
                             int32_t threads) {
  try {
    return new Session(*decoder, block_size, num_blocks, cache_bytes, threads);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

EXPORT void kernels_close(Session* session) { delete session; }

EXPORT int64_t kernels_block_bytes(const Decoder* decoder, int32_t block_size, int32_t cache_bytes) {
  return static_cast<int64_t>(decoder->kv_layout(block_size, cache_bytes).block_bytes());
}

EXPORT int32_t kernels_forward(Session* session, const Step* step, float* hidden) {
  try {
    session->forward(*step, hidden);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

EXPORT int32_t kernels_touch_ahead(Session* session) { return session->touch_ahead() ? 1 : 0; }

EXPORT int32_t kernels_copy_blocks(Session* session, const int32_t* pairs, int32_t count) {
  try {
    session->copy_blocks(pairs, count);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

EXPORT int32_t kernels_logits(Session* session, const float* hidden, int32_t count, float* logits) {
  try {
    session->logits(hidden, count, logits);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// Of each row [count][vocabulary]: the first of the largest logits, and its value.
EXPORT void kernels_likeliest(const float* logits, int32_t count, int32_t vocabulary, float* largest, int64_t* tokens) {
  for (int row = 0; row < count; row++)
    tokens[row] = likeliest(logits + static_cast<size_t>(row) * vocabulary, vocabulary, &largest[row]);
}

// Of each row [count][vocabulary] its normaliser, and its `top` largest logits and their tokens [count][top], as draw.h says.
// Returns 0, or 1 where memory is short.
EXPORT int32_t kernels_top_logits(const float* logits, int32_t count, int32_t vocabulary, int32_t top, float* normalisers,
                                  float* values, int64_t* tokens) {
  try {
    for (size_t row = 0; row < static_cast<size_t>(count); row++) {
      const Normaliser normaliser =
          top_logits(logits + row * vocabulary, vocabulary, top, values + row * top, tokens + row * top);
      normalisers[2 * row] = normaliser.largest;
      normalisers[2 * row + 1] = normaliser.log_sum;
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// A token of each row by its rule. Returns 0, or 1 where memory is short.
EXPORT int32_t kernels_draw(const float* logits, int32_t count, int32_t vocabulary, const DrawRule* rules,
                            int64_t* tokens) {
  try {
    for (int row = 0; row < count; row++)
      tokens[row] = draw(logits + static_cast<size_t>(row) * vocabulary, vocabulary, rules[row]);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
