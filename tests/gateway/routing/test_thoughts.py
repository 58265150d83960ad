from contextlib import aclosing

from msgspec.structs import replace

from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.messages import ASSISTANT, USER, Message, Part, ProviderData, Reasoning, Text, ToolCall
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request, Tool
from adapters.canonical.stop_reason import StopReason
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.router import Progress, Router, RoutingRules
from gateway.routing.thoughts import KeptThoughts
from providers.base import Batch, Capabilities
from providers.testing.scripted import ScriptedProvider

CAPABILITIES = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Reasoning, ToolCall)))
TOOLS = (Tool(kind="function", name="f"),)
FIRST = Reasoning(text="hmm", signature="S1", origin="up")
SECOND = Reasoning(encrypted="E2", origin="up")
CALL = ToolCall(id="c1", name="f", arguments="{}")
OTHER = ToolCall(id="c2", name="g", arguments="{}")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(*turns: tuple[Part, ...]) -> Request:
    messages = [Message(role=USER, parts=(Text(text="go"),)), *[Message(role=ASSISTANT, parts=turn) for turn in turns]]
    return Request(model="m", dialect="openai.chat", messages=tuple(messages), tools=TOOLS)


def answered(store: KeptThoughts, owner: str = "", call_id: str = "c1") -> None:
    watch = store.watch(ask(), owner)
    assert watch is not None
    watch.see([ReasoningDelta(0, 0, "hm"), ReasoningDelta(0, 0, "m")])
    watch.see([ReasoningFinished(0, 0, signature="S1", origin="up"), TextDelta(0, 1, "so")])
    watch.see([ReasoningFinished(0, 2, encrypted="E2", origin="up")])
    watch.see([ToolCallStarted(0, 3, call_id, "f"), ToolCallStarted(0, 4, "c2", "g")])
    watch.close()


def parts_after(store: KeptThoughts, *parts: Part, owner: str = "") -> tuple[Part, ...]:
    messages = store.restored(ask(parts), owner).messages
    assert messages is not None
    return messages[-1].parts


def test_thoughts_that_a_client_drops_come_back_where_they_stood() -> None:
    store = KeptThoughts(Clock())
    answered(store)
    said = Text(text="so")
    assert parts_after(store, said, CALL, OTHER) == (FIRST, said, SECOND, CALL, OTHER)
    assert parts_after(store, Reasoning(text="hmm"), said, CALL, OTHER) == (FIRST, said, SECOND, CALL, OTHER)
    assert parts_after(store, OTHER) == (FIRST, SECOND, OTHER)


def test_a_turn_that_is_written_as_a_message_a_call_gets_them_once() -> None:
    store = KeptThoughts(Clock())
    answered(store)
    messages = store.restored(ask((CALL,), (OTHER,)), "").messages
    assert messages is not None
    assert [len(message.parts) for message in messages] == [1, 3, 1]


def test_what_a_client_gave_back_itself_stays_as_it_is() -> None:
    store = KeptThoughts(Clock())
    answered(store)
    own = Reasoning(text="hmm", signature="S1", origin="up")
    assert parts_after(store, own, CALL) == (own, CALL)
    carried = ToolCall(id="c1", name="f", provider_data=ProviderData("openai.chat", {"extra_content": b"{}"}))
    assert parts_after(store, carried) == (carried,)


def test_another_client_and_another_call_get_nothing() -> None:
    store = KeptThoughts(Clock())
    answered(store, owner="ann")
    assert parts_after(store, CALL, owner="bob") == (CALL,)
    stranger = ToolCall(id="c9", name="f")
    assert parts_after(store, stranger, owner="ann") == (stranger,)
    renamed = ToolCall(id="c1", name="h")
    assert parts_after(store, renamed, owner="ann") == (renamed,)


def test_unsigned_thoughts_are_not_kept_and_do_not_count_as_parts() -> None:
    store = KeptThoughts(Clock())
    watch = store.watch(ask(), "")
    assert watch is not None
    watch.see([ReasoningDelta(0, 0, "free"), ReasoningFinished(0, 1, signature="S", origin="up")])
    watch.see([ToolCallStarted(0, 2, "c1", "f")])
    watch.close()
    assert parts_after(store, CALL) == (Reasoning(signature="S", origin="up"), CALL)


def test_an_answer_without_tools_is_not_watched() -> None:
    request = Request(model="m", dialect="openai.chat", messages=())
    assert KeptThoughts(Clock()).watch(request, "") is None


def test_thoughts_are_forgotten_with_time_and_beyond_their_bounds() -> None:
    clock = Clock()
    store = KeptThoughts(clock, max_calls=4, life_s=10)
    answered(store)
    clock.now = 11
    assert parts_after(store, CALL) == (CALL,)
    answered(store)
    for number in range(20):
        answered(store, owner=str(number))
    assert parts_after(store, CALL) == (CALL,)
    assert len(parts_after(store, CALL, owner="19")) == 3
    small = KeptThoughts(clock, max_bytes=100)
    answered(small)
    assert parts_after(small, CALL) == (CALL,)


async def test_the_router_puts_them_back_for_the_client_that_was_answered() -> None:
    answer: list[Batch] = [
        [Started(id="1"), ReasoningDelta(0, 0, "hm")],
        [ReasoningFinished(0, 0, signature="S", origin="a"), ToolCallStarted(0, 1, "c1", "f")],
        [ToolCallFinished(0, 1), ChoiceFinished(0, StopReason.TOOL_CALLS)],
    ]
    provider = ScriptedProvider("a", answer, capabilities=CAPABILITIES)
    rules = {"a": ProviderRules(provider)}
    lists = ModelLists({"a": provider}, lambda: 0.0)
    router = Router(Names(rules, {}, lists), RoutingRules(), random=lambda: 1.0, clock=Clock())

    async def run(request: Request, key: str) -> Request:
        progress = Progress(key=key)
        async with aclosing(router.stream(replace(request, model="a/m"), progress, str)) as batches:
            async for _ in batches:
                pass
        return provider.requests[-1]

    await run(ask(), "ann")
    again = ask((CALL,))
    for key, expected in (("ann", (Reasoning(text="hm", signature="S", origin="a"), CALL)), ("bob", (CALL,))):
        messages = (await run(again, key)).messages
        assert messages is not None
        assert messages[-1].parts == expected
