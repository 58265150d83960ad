"""Text becomes parts: reasoning, text and calls, numbered in their order, wherever the text is cut."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import ChoiceFinished, Event, ReasoningDelta, TextDelta, ToolCallStarted
from adapters.canonical.messages import Part, Reasoning, Text, ToolCall
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.text.harmony import HarmonyReader
from adapters.text.pipeline import HiddenReasoning, Passage, TextPipeline
from adapters.text.reasoning import REASONING_FORMATS, ReasoningSplitter
from adapters.text.tool_calls import TOOL_FORMATS, ToolCallParser
from tests.adapters.text.cuts import all_cuts, cut_at

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "<think>"}}\n</tool_call>'
SNIPPETS = ["<think>", "</think>", CALL, CALL[:30], "\n", "a", "<", "</tool_call>"]


def pipeline(*, shows_reasoning: bool = True, tools: bool = True) -> TextPipeline:
    numbers = count()
    calls = ToolCallParser(TOOL_FORMATS["hermes"], {"f"}, lambda: f"call_{next(numbers)}") if tools else None
    return TextPipeline(ReasoningSplitter(REASONING_FORMATS["think"]), calls, shows_reasoning=shows_reasoning)


def passages(pieces: list[str], *, shows_reasoning: bool = True, tools: bool = True) -> list[Passage]:
    line = pipeline(shows_reasoning=shows_reasoning, tools=tools)
    return [passage for piece in pieces for passage in line.feed(piece)] + line.flush()


def parts(pieces: list[str], *, shows_reasoning: bool = True, tools: bool = True) -> tuple[Part, ...]:
    found = passages(pieces, shows_reasoning=shows_reasoning, tools=tools)
    events: list[Event] = [event for event, _, _ in found if not isinstance(event, HiddenReasoning)]
    seen = [event.part for event in events if isinstance(event, TextDelta | ReasoningDelta | ToolCallStarted)]
    assert list(dict.fromkeys(seen)) == list(range(len(set(seen))))
    return fold([*events, ChoiceFinished(0, StopReason.STOP)]).choices[0].parts


def test_reasoning_text_and_calls_are_parts_in_the_order_of_their_appearance() -> None:
    text = f"<think>\nplan {CALL}\n</think>\n\nLook.\n{CALL}\n{CALL}\nDone."
    arguments = '{"a": "<think>"}'
    for pieces in all_cuts(text):
        assert parts(pieces) == (
            Reasoning(text=f"plan {CALL}"),
            Text(text="Look."),
            ToolCall(id="call_0", name="f", arguments=arguments),
            ToolCall(id="call_1", name="f", arguments=arguments),
            Text(text="Done."),
        )


def test_a_harmony_answer_is_parts_too() -> None:
    text = (
        "<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>commentary<|message|>Look.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
    )
    for pieces in all_cuts(text):
        line = TextPipeline(HarmonyReader({"f"}, lambda: "call_0"), None)
        found = [*(passage for piece in pieces for passage in line.feed(piece)), *line.flush()]
        events: list[Event] = [event for event, _, _ in found if not isinstance(event, HiddenReasoning)]
        assert fold([*events, ChoiceFinished(0, StopReason.TOOL_CALLS)]).choices[0].parts == (
            Reasoning(text="plan"),
            Text(text="Look."),
            ToolCall(id="call_0", name="f", arguments='{"a": 1}'),
        )


def test_empty_reasoning_is_no_part() -> None:
    for pieces in all_cuts("<think>\n\n</think>\n\nHi"):
        assert parts(pieces) == (Text(text="Hi"),)


def test_hidden_reasoning_leaves_no_gap_in_the_numbers_and_is_still_told() -> None:
    for pieces in all_cuts(f"<think>plan</think>{CALL}"):
        (call,) = parts(pieces, shows_reasoning=False)
        assert isinstance(call, ToolCall)
        found = passages(pieces, shows_reasoning=False)
        hidden = [passage for passage in found if isinstance(passage.event, HiddenReasoning)]
        assert sum(end - start for _, start, end in hidden) == len("plan")


def test_without_tools_the_marks_of_calls_are_text() -> None:
    assert parts([f"<think>a</think>{CALL}"], tools=False) == (Reasoning(text="a"), Text(text=CALL))


def test_the_last_part_is_told_while_it_may_grow() -> None:
    line = pipeline()
    assert line.last_part() is None
    line.feed("<think>a")
    assert line.last_part() == ReasoningDelta(0, 0, "")
    line.feed("</think>b")
    assert line.last_part() == TextDelta(0, 1, "")
    line.feed(CALL)
    assert line.last_part() is None
    assert line.num_calls == 1


@given(
    snippets=st.lists(st.sampled_from(SNIPPETS), max_size=8),
    places=st.lists(st.integers(0, 200), max_size=10),
    shows_reasoning=st.booleans(),
)
def test_any_text_makes_the_same_parts_and_each_passage_says_where_it_stood(
    snippets: list[str], places: list[int], shows_reasoning: bool
) -> None:
    text = "".join(snippets)
    pieces = cut_at(text, places)
    assert parts(pieces, shows_reasoning=shows_reasoning) == parts([text], shows_reasoning=shows_reasoning)
    behind = 0
    for event, start, end in passages(pieces, shows_reasoning=shows_reasoning):
        if isinstance(event, TextDelta | ReasoningDelta):
            assert text[start:end] == event.text
        if end > start:
            assert start >= behind
            behind = end
