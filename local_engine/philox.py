"""Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

A number is a function of (seed, position) alone, so a draw cannot depend on the batch, the row or what ran before.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["derived_seed", "philox4x32", "uniforms"]

Words = npt.NDArray[np.uint64]

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """Four random 32-bit words for each counter (four 32-bit words) and key (two), held in uint64 arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def uniforms(seeds: Sequence[int], positions: Sequence[int], *, lane: int = 0) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position): multiples of 2^-52. Seeds are taken modulo 2^64.

    lane: numbers of other lanes are others, for what needs more than one.
    """
    seed = np.array([value & 0xFFFFFFFFFFFFFFFF for value in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    zero = np.zeros_like(position)
    counter = (position & _LOW, position >> _SHIFT, zero + np.uint64(lane), zero)
    high, low, _, _ = philox4x32(counter, (seed & _LOW, seed >> _SHIFT))
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    return bits.astype(np.float64) * 2.0**-52


def derived_seed(seed: int, member: int) -> int:
    """A seed for another answer to the same request: 64 bits, of a counter that no draw uses."""
    one = np.ones(1, dtype=np.uint64)
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    counter = (one * np.uint64(member), one, one, one)
    high, low, _, _ = philox4x32(counter, (key & _LOW, key >> _SHIFT))
    return int(high[0]) << 32 | int(low[0])
