"""The noise against the published test vectors, and what a sampler relies on."""

import numpy as np
import pytest

from local_engine.philox import derived_seed, philox4x32, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_words_are_those_of_the_published_vectors(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (np.array([word], dtype=np.uint64) for word in counter)
    k0, k1 = (np.array([word], dtype=np.uint64) for word in key)
    words = philox4x32((c0, c1, c2, c3), (k0, k1))
    assert tuple(int(word[0]) for word in words) == expected


def test_a_number_depends_on_its_own_seed_and_position_alone() -> None:
    alone = uniforms([42], [7])[0]
    among = uniforms([1, -5, 42, 2**63 - 1], [0, 3, 7, 10**6])
    assert among[2] == alone
    assert len(set(among)) == 4


def test_numbers_spread_evenly_and_stay_below_one() -> None:
    numbers = uniforms([9] * 20_000, range(20_000))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert counts.min() > 1850
    assert counts.max() < 2150


def test_derived_seeds_are_a_function_of_seed_and_member_and_differ() -> None:
    seeds = {derived_seed(seed, member) for seed in (0, 1, -1, 2**63 - 1) for member in range(100)}
    assert len(seeds) == 400
    assert derived_seed(5, 3) == derived_seed(5, 3)
    assert all(0 <= seed < 2**64 for seed in seeds)
