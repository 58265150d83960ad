"""How fast this machine reads memory: the limit of decoding one stream, which reads all weights for each token."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

__all__ = ["read_bandwidth"]

_SOURCE = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
typedef uint64_t wide __attribute__((vector_size(64)));
typedef struct { const char* begin; const char* end; wide found; } part;
static void* run(void* argument) {
  part* mine = argument;
  wide a = {0}, b = {0}, c = {0}, d = {0};
  for (const char* at = mine->begin; at + 256 <= mine->end; at += 256) {
    const wide* w = (const wide*)at;
    a ^= w[0]; b ^= w[1]; c ^= w[2]; d ^= w[3];
    for (int i = 0; i < 4; i++) __builtin_prefetch(at + 4096 + 64 * i);
  }
  mine->found = a ^ b ^ c ^ d;
  return 0;
}
double bandwidth(int threads) {
  const size_t size = (size_t)256 << 20;
  char* memory = aligned_alloc(2 << 20, size);
  memset(memory, 1, size);
  pthread_t ids[64];
  part parts[64];
  double best = 0;
  for (int round = 0; round < 12; round++) {
    struct timespec start, stop;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < threads; i++) {
      parts[i].begin = memory + size / threads * i / 256 * 256;
      parts[i].end = memory + size / threads * (i + 1) / 256 * 256;
      pthread_create(&ids[i], 0, run, &parts[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
    clock_gettime(CLOCK_MONOTONIC, &stop);
    double rate = size / (stop.tv_sec - start.tv_sec + 1e-9 * (stop.tv_nsec - start.tv_nsec));
    best = rate > best ? rate : best;
  }
  free(memory);
  return best;
}
"""


def read_bandwidth(threads: int) -> float:
    """Bytes per second, the best of several passes over 256 MiB. Needs a C compiler. threads: at most 64."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "bandwidth.so"
        flags = ("-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-Wno-psabi")
        subprocess.run(["cc", *flags, "-xc", "-", "-o", library], input=_SOURCE, text=True, check=True)
        function = ctypes.CDLL(str(library)).bandwidth
        function.restype, function.argtypes = ctypes.c_double, (ctypes.c_int,)
        rate: float = function(threads)
        return rate
