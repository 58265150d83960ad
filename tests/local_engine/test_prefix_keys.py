"""Equal keys mean equal tokens from the first on, under equal weights, type, adapter and salt."""

from hypothesis import given
from hypothesis import strategies as st

from local_engine.prefix_keys import extend_keys, root_key

TOKENS = st.lists(st.integers(0, 3) | st.integers(0, 2**31 - 1), max_size=24)


def keys_of(tokens: list[int], root: bytes = b"root", block_size: int = 4) -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, tokens, root=root, block_size=block_size)
    return keys


@given(TOKENS, TOKENS)
def test_two_prompts_share_exactly_the_keys_of_the_full_blocks_that_they_begin_with(
    one: list[int], other: list[int]
) -> None:
    common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    ours, theirs = keys_of(one), keys_of(other)
    assert len(ours) == len(one) // 4
    assert set(ours) & set(theirs) == set(ours[: common // 4])
    assert ours[: common // 4] == theirs[: common // 4]


@given(TOKENS, st.integers(0, 24))
def test_keys_grow_with_the_tokens_and_never_change(tokens: list[int], cut: int) -> None:
    keys = keys_of(tokens[:cut])
    extend_keys(keys, tokens, root=b"root", block_size=4)
    assert keys == keys_of(tokens)


def test_the_same_block_at_another_place_has_another_key() -> None:
    assert len(set(keys_of([5] * 40))) == 10


def test_whatever_the_cache_depends_on_changes_every_key() -> None:
    roots = {
        root_key(weights=weights, kv_dtype=kv_dtype, adapter=adapter, cache_salt=cache_salt)
        for weights, kv_dtype in (("w1", "float32"), ("w2", "float32"), ("w1", "float16"))
        for adapter in (None, "", "a", "b", "None", "a', 'b")
        for cache_salt in (None, "", "a", "b", "None", "\ud800")
    }
    assert len(roots) == 3 * 6 * 6
    assert len({key for root in roots for key in keys_of([1] * 8, root)}) == 2 * len(roots)
