"""Events whose texts hold marks become events with parts; tokens stay with the text that shows them."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import ChoiceFinished, Event, ReasoningDelta, Started, TextDelta, UsageReported
from adapters.canonical.messages import Reasoning, Text, ToolCall
from adapters.canonical.result import Choice, fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, Usage
from adapters.text.marked_events import MarkedEvents
from adapters.text.pipeline import TextPipeline
from adapters.text.reasoning import REASONING_FORMATS, ReasoningSplitter
from adapters.text.tool_calls import TOOL_FORMATS, ToolCallParser

PIECES = [
    "<think>", "\n", "pl", "an", "</th", "ink>", "\n\n", "Lo", "ok.", "\n", "<tool_call>",
    '{"name": "f", "arguments": {"a', '": 1}}', "</tool_call>",
]  # fmt: skip
PARTS = (Reasoning(text="plan"), Text(text="Look."), ToolCall(id="call_0", name="f", arguments='{"a": 1}'))


def marked(*, shows: bool = True) -> MarkedEvents:
    numbers = count()
    return MarkedEvents(
        lambda: TextPipeline(
            ReasoningSplitter(REASONING_FORMATS["think"]),
            ToolCallParser(TOOL_FORMATS["hermes"], {"f"}, lambda: f"call_{next(numbers)}"),
            shows_reasoning=shows,
        )
    )


def delta(text: str, tokens: list[str] = [], choice: int = 0, ids: bool = False) -> TextDelta:  # noqa: B006 - read only
    entries = tuple([TokenLogprob(token, -0.5, raw=token.encode()) for token in tokens])
    return TextDelta(choice, 0, text, entries, tuple(range(len(tokens))) if ids else ())


def read(batches: list[list[Event]], *, shows: bool = True) -> tuple[Choice, ...]:
    reader = marked(shows=shows)
    return fold([event for batch in batches for event in reader.feed(batch)]).choices


END = ChoiceFinished(0, StopReason.STOP, "stop")


def test_texts_become_parts_and_the_end_tells_of_calls() -> None:
    (choice,) = read([[Started(), *map(delta, PIECES), UsageReported(Usage(prompt_tokens=1)), END]])
    assert choice.parts == PARTS
    assert choice.finish == ChoiceFinished(0, StopReason.TOOL_CALLS, "stop")


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=20), tells=st.booleans())
def test_deltas_may_be_cut_anywhere(sizes: list[int], tells: bool) -> None:
    left, batches = list(PIECES), []
    for size in [*sizes, *[1] * len(PIECES)]:
        now, left = left[:size], left[size:]
        if now:
            batches.append([delta("".join(now), now if tells else [])])
    (choice,) = read([[Started()], *batches, [END]])  # type: ignore[list-item]
    assert choice.parts == PARTS
    assert [entry.text for entry in choice.reasoning_logprobs] == (["pl", "an"] if tells else [])
    assert [entry.text for entry in choice.logprobs] == (["Lo", "ok."] if tells else [])


def test_ids_stay_with_their_logprobs() -> None:
    (choice,) = read([[delta("<think>a</think>b", ["<think>", "a", "</think>", "b"], ids=True), END]])
    assert choice.token_ids == (1, 3)


def test_tokens_without_text_and_halves_of_characters_are_told_once() -> None:
    entries = tuple([TokenLogprob("x", -1.0, raw=raw) for raw in (b"", b"\xf0\x9f", b"\x98\x8a", b"")])
    (choice,) = read([[TextDelta(0, 0, "😊", entries), END]])
    assert choice.logprobs == entries


def test_hidden_reasoning_leaves_no_trace() -> None:
    (choice,) = read([[delta("<think>a</think>b", ["<think>a</think>", "b"]), END]], shows=False)
    assert choice.parts == (Text(text="b"),)
    assert [entry.text for entry in choice.logprobs] == ["b"]


def test_each_choice_is_read_by_itself() -> None:
    found = read([[delta("<thi"), delta("<think>x", choice=1), delta("nk>a</think>b"), delta("</think>c", choice=1)],
                  [END, ChoiceFinished(1, StopReason.LENGTH)]])  # fmt: skip
    assert [choice.parts for choice in found] == [
        (Reasoning(text="a"), Text(text="b")),
        (Reasoning(text="x"), Text(text="c")),
    ]
    assert found[1].finish.reason is StopReason.LENGTH


def test_parts_that_the_upstream_told_itself_keep_their_place() -> None:
    events: list[Event] = [ReasoningDelta(0, 0, "own"), TextDelta(0, 1, "<tool_call>x"), END]
    (choice,) = read([events])
    assert choice.parts == (Reasoning(text="own"), Text(text="<tool_call>x"))


def test_half_of_a_second_call_is_withheld_where_a_limit_cut_it_and_text_where_the_model_ended() -> None:
    written = [*PIECES, "\n<tool_call>", '{"name": "f", "argu']
    (choice,) = read([[*map(delta, written), ChoiceFinished(0, StopReason.LENGTH, "length")]])
    assert choice.parts == PARTS
    assert choice.finish == ChoiceFinished(0, StopReason.LENGTH, "length")
    (choice,) = read([[*map(delta, written), END]])
    assert choice.parts == (*PARTS, Text(text='<tool_call>{"name": "f", "argu'))
