"""The memory of answers is bounded, forgets what is old, and gives back what was put in."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import (
    ChoiceFinished,
    MediaDelta,
    ProviderReported,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, Usage
from gateway.cache.stored_answer import decode_answer, encode_answer
from gateway.cache.stores import MemoryStore
from providers.base import Batch

ANSWER: list[Batch] = [
    [Started("id", 1, "m"), TextDelta(0, 0, "a", (TokenLogprob("a", -0.5, 7, b"a", (TopLogprob("b", -1.0),)),), (7,))],
    [ReasoningFinished(0, 1, "sig", provider_data=ProviderData(origin="x", fields={"k": b"{}"}))],
    [ToolCallStarted(0, 2, "c1", "f"), ToolArgumentsDelta(0, 2, "{}"), MediaDelta(0, 3, "audio", "AAAA")],
    [ChoiceFinished(0, StopReason.STOP, "stop", 5), UsageReported(Usage(prompt_tokens=1, cached_tokens=0))],
    [ProviderReported({"field": b"[1]"}, "openai")],
]


def test_every_kind_of_event_comes_back_as_it_was() -> None:
    assert decode_answer(encode_answer(ANSWER, ("user",))) == (ANSWER, ("user",))


async def test_what_is_too_old_is_forgotten() -> None:
    now = [0.0]
    store = MemoryStore(1000, 10, lambda: now[0])
    await store.put(b"k", b"v")
    now[0] = 9.9
    assert await store.get(b"k") == b"v"
    now[0] = 10
    assert await store.get(b"k") is None
    assert store.size == 0


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.binary(max_size=60)), max_size=60))
async def test_it_never_holds_more_than_its_bound_and_always_what_came_last(puts: list[tuple[bytes, bytes]]) -> None:
    store = MemoryStore(100, 10, lambda: 0.0)
    for key, data in puts:
        await store.put(key, data)
        assert store.size <= 100
        assert await store.get(key) == data


async def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    store = MemoryStore(100, 10, lambda: 0.0)
    await store.put(b"k", b"x" * 100)
    assert await store.get(b"k") is None


async def test_what_was_not_used_for_longest_goes_first() -> None:
    store = MemoryStore(20, 10, lambda: 0.0)
    await store.put(b"a", b"x" * 9)
    await store.put(b"b", b"x" * 9)
    await store.get(b"a")
    await store.put(b"c", b"x" * 9)
    assert [await store.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
