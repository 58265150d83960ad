"""Tokens become reasoning, text and calls; logprobs and ids go with the text that they belong to, and are said once."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import Event, ReasoningDelta, TextDelta
from adapters.canonical.messages import USER, Message, Reasoning, Text, ToolCall
from adapters.canonical.request import ReasoningOptions, Request, Sampling, Tool, ToolChoice
from adapters.canonical.result import Choice, fold
from adapters.canonical.stop_reason import StopReason
from local_engine.generation import FinishReason, StepOutput, TokenOutput
from local_engine.sampling import SamplingDefaults
from providers.local.chat_template import ChatTemplate
from providers.local.local_model import LocalModel
from providers.local.settings import LocalModelSettings
from providers.local.text_answer import TextAnswer
from providers.local.text_formats import text_formats, text_pipeline
from tests.providers.local.templates import CHATML_TOOLS
from tests.providers.local.test_text_formats import MarkingVocabulary
from tests.scripted_engine import EOS_ID, ScriptedEngine, Vocabulary

VOCABULARY = Vocabulary()
TEMPLATE = ChatTemplate(CHATML_TOOLS)
MODEL = LocalModel(
    name="m",
    engine=ScriptedEngine(),
    tokenizer=VOCABULARY,
    template=TEMPLATE,
    stop_token_ids=frozenset((EOS_ID,)),
    defaults=SamplingDefaults(),
    formats=text_formats(TEMPLATE, VOCABULARY, LocalModelSettings()),
)
MESSAGES = (Message(role=USER, parts=(Text(text="hi"),)),)
TOOLS = (Tool(kind="function", name="f"),)
CALL = ["<tool_call>", "\n", '{"name": "f", "arg', 'uments": {"a"', ": 1}}", "\n", "</tool_call>"]


def asked(**fields: object) -> Request:
    given_fields = {"messages": MESSAGES, "tools": TOOLS, **fields}
    return Request(model="m", dialect="d", **given_fields)  # type: ignore[arg-type]


def tokens(pieces: list[str] | list[bytes]) -> tuple[TokenOutput, ...]:
    return tuple([TokenOutput(VOCABULARY.add(piece), -0.5, ()) for piece in pieces])


def play(
    request: Request, pieces: list[str] | list[bytes], steps: list[int] | None = None, finish: FinishReason = "stop"
) -> tuple[list[Event], TextAnswer]:
    """The events of these tokens in steps of these sizes (then one a step)."""
    numbers = count()
    pipeline = text_pipeline(MODEL.formats, request, starts_inside=False, new_call_id=lambda: f"call_{next(numbers)}")
    answer = TextAnswer(MODEL, request, pipeline)
    events: list[Event] = []
    left, sizes = tokens(pieces), iter(steps or ())
    while left and not answer.finished:
        size = next(sizes, 1)
        events += answer.feed(StepOutput(left[:size], None, None, None, 3, 0))
        left = left[size:]
    if not answer.finished:
        events += answer.feed(StepOutput((), finish, EOS_ID if finish == "stop" else None, None, 3, 0))
    return events, answer


def answered(request: Request, pieces: list[str] | list[bytes], **how: object) -> Choice:
    return fold(play(request, pieces, **how)[0]).choices[0]  # type: ignore[arg-type]


def raws(choice: Choice) -> tuple[list[bytes | None], list[bytes | None]]:
    """The tokens told with the reasoning, and with the text."""
    return [entry.raw for entry in choice.reasoning_logprobs], [entry.raw for entry in choice.logprobs]


def test_each_token_goes_with_its_own_text_and_those_of_marks_and_calls_go_nowhere() -> None:
    pieces = ["<think>", "\n", "pl", "an", "\n", "</think>", "\n\n", "Lo", "ok.", *CALL, "Done", "."]
    choice = answered(asked(logprobs=0, return_token_ids=True), pieces)
    assert choice.parts == (
        Reasoning(text="plan"),
        Text(text="Look."),
        ToolCall(id="call_0", name="f", arguments='{"a": 1}'),
        Text(text="Done."),
    )
    assert raws(choice) == ([b"pl", b"an"], [b"Lo", b"ok.", b"Done", b"."])
    assert VOCABULARY.decode(choice.token_ids) == "planLook.Done."
    assert choice.finish.reason is StopReason.TOOL_CALLS


def test_a_token_that_lies_in_two_texts_is_told_once_with_the_first_that_shows_it() -> None:
    choice = answered(asked(logprobs=0), ["<thi", "nk>pl", "an</th", "ink>do", "ne"])
    assert raws(choice) == ([b"nk>pl", b"an</th"], [b"ink>do", b"ne"])
    assert raws(answered(asked(logprobs=0), ["<think>a</think>b"])) == ([b"<think>a</think>b"], [])


def test_a_token_is_told_as_soon_as_a_character_of_it_is_shown() -> None:
    events, _ = play(asked(logprobs=0), ["a <", "b"])
    told = [(event.text, [entry.raw for entry in event.logprobs]) for event in events if isinstance(event, TextDelta)]
    assert told == [("a ", [b"a <"]), ("<b", [b"b"])]


def test_tokens_of_one_character_go_out_together() -> None:
    choice = answered(asked(logprobs=0), [b"<think>", b"\xf0\x9f", b"\x98\x8a", b"</think>", b"\xc3", b"\xa9"])
    assert raws(choice) == ([b"\xf0\x9f", b"\x98\x8a"], [b"\xc3", b"\xa9"])


def test_a_token_without_text_is_told_with_the_next_or_with_the_last_part() -> None:
    assert raws(answered(asked(logprobs=0), ["", "a", ""])) == ([], [b"", b"a", b""])
    assert raws(answered(asked(logprobs=0), ["<think>", "a", ""])) == ([b"a", b""], [])
    assert raws(answered(asked(logprobs=0), [*CALL, ""])) == ([], [])


def test_reasoning_tokens_are_counted_while_they_come_and_without_their_marks() -> None:
    pieces = ["<think>", "a", "b", "</think>", "c"]
    events, answer = play(asked(), pieces)
    assert (answer.reasoning_tokens, answer.completion_tokens) == (2, 5)
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["a", "b"]
    _, cut = play(asked(), pieces[:2], finish="length")
    assert cut.reasoning_tokens == 1


def test_hidden_reasoning_is_counted_and_leaves_no_trace() -> None:
    request = asked(logprobs=0, return_token_ids=True, reasoning=ReasoningOptions(include=False))
    events, answer = play(request, ["<think>", "a", "b", "</think>", "c"])
    choice = fold(events).choices[0]
    assert choice.parts == (Text(text="c"),)
    assert raws(choice) == ([], [b"c"])
    assert VOCABULARY.decode(choice.token_ids) == "c"
    assert answer.reasoning_tokens == 2


def test_an_answer_that_is_only_text_has_no_reasoning_tokens_to_count() -> None:
    assert TextAnswer(MODEL, asked()).reasoning_tokens is None


def test_a_cut_stays_a_cut_though_there_was_a_call() -> None:
    assert answered(asked(), CALL, finish="length").finish.reason is StopReason.LENGTH
    cut = answered(asked(), CALL[:4], finish="length")
    assert cut.parts == (ToolCall(id="call_0", name="f", arguments='{"a"'),)
    assert cut.finish.reason is StopReason.LENGTH


def test_text_that_is_no_call_ends_as_text() -> None:
    choice = answered(asked(), CALL[:3])
    assert choice.parts == (Text(text="".join(CALL[:3])),)
    assert choice.finish.reason is StopReason.STOP


def test_without_a_tool_choice_everything_stays_text() -> None:
    choice = answered(asked(tool_choice=ToolChoice(mode="none")), ["<think>a</think>", *CALL])
    assert choice.parts == (Reasoning(text="a"), Text(text="".join(CALL)))
    assert choice.finish.reason is StopReason.STOP


def test_a_stop_string_ends_the_answer_behind_a_call_and_drops_the_tokens_behind_it() -> None:
    request = asked(logprobs=0, sampling=Sampling(stop=("\nUser:",)))
    events, answer = play(request, ["<think>a</think>", *CALL, "ok", "\nUs", "er:", "b"])
    choice = fold(events).choices[0]
    assert [type(part) for part in choice.parts] == [Reasoning, ToolCall, Text]
    assert raws(choice) == ([b"<think>a</think>"], [b"ok"])
    assert (choice.finish.reason, choice.finish.stop) == (StopReason.TOOL_CALLS, "\nUser:")
    assert answer.completion_tokens == len(CALL) + 4


@pytest.mark.parametrize("steps", [None, [99]])
@pytest.mark.parametrize("logprobs", [None, 0])
def test_a_stop_string_in_the_reasoning_is_no_stop(steps: list[int] | None, logprobs: int | None) -> None:
    request = asked(logprobs=logprobs, sampling=Sampling(stop=("Question:",)))
    pieces = ["<think>", "Ques", "tion: x", "</think>", "b Ques", "tion:", "c"]
    choice = answered(request, pieces, steps=steps)
    assert choice.parts == (Reasoning(text="Question: x"), Text(text="b "))
    assert (choice.finish.reason, choice.finish.stop) == (StopReason.STOP, "Question:")
    told = asked(sampling=Sampling(stop=("Question:",)), reasoning=ReasoningOptions(separate=False))
    assert answered(told, pieces, steps=steps).parts == (Text(text="<think>"),)


PIECES = ["<think>", "</think>", "<th", "ink>", "\n", "a", "b ", "", *CALL, "".join(CALL), "stop", "st", "😊"]


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=14),
    steps=st.lists(st.integers(1, 5), max_size=8),
    stop=st.sampled_from([None, ("stop",), ("a", "</think>")]),
    finish=st.sampled_from(["stop", "length"]),
    shows=st.booleans(),
)
def test_steps_may_be_cut_anywhere_and_no_token_is_told_twice(
    pieces: list[str], steps: list[int], stop: tuple[str, ...] | None, finish: FinishReason, shows: bool
) -> None:
    request = asked(
        logprobs=0,
        return_token_ids=True,
        sampling=Sampling(stop=stop),
        reasoning=None if shows else ReasoningOptions(include=False),
    )
    events, answer = play(request, pieces, steps, finish)
    whole, whole_answer = play(request, pieces, [len(pieces)], finish)
    choice = fold(events).choices[0]
    assert choice == fold(whole).choices[0]
    assert answer.reasoning_tokens == whole_answer.reasoning_tokens
    assert answer.completion_tokens == whole_answer.completion_tokens
    told = [*choice.reasoning_logprobs, *choice.logprobs]
    assert len(told) == len(choice.token_ids) <= answer.completion_tokens
    for part, entries in ((Reasoning, choice.reasoning_logprobs), (Text, choice.logprobs)):
        text = "".join([found.text for found in choice.parts if isinstance(found, part)])
        if all((entry.raw or b"").decode() in text for entry in entries):
            assert "".join([(entry.raw or b"").decode() for entry in entries]) == text


def test_a_mark_that_is_a_special_token_is_read_though_special_tokens_are_left_out() -> None:
    vocabulary = MarkingVocabulary(["[TOOL_CALLS]", "[{", '"name": "f"', "}]"])
    template = ChatTemplate("[TOOL_CALLS]{{ tools }}")
    model = replace(MODEL, tokenizer=vocabulary, formats=text_formats(template, vocabulary, LocalModelSettings()))
    ids = [vocabulary.add(piece) for piece in ("[TOOL_CALLS]", "[{", '"name": "f"', "}]")]
    told = tuple([TokenOutput(token, None, ()) for token in ids])
    for request, part in (
        (asked(), ToolCall(id="c", name="f", arguments="{}")),
        (asked(tools=None), Text(text='[{"name": "f"}]')),
    ):
        line = text_pipeline(model.formats, request, starts_inside=False, new_call_id=lambda: "c")
        events = TextAnswer(model, request, line).feed(StepOutput(told, "stop", EOS_ID, None, 3, 0))
        assert fold(events).choices[0].parts == (part,)


@pytest.mark.parametrize("logprobs", [None, 0])
def test_without_marks_the_text_is_as_it_came(logprobs: int | None) -> None:
    choice = answered(asked(logprobs=logprobs), ["a", " < ", "b\n"])
    assert choice.parts == (Text(text="a < b\n"),)


@pytest.mark.parametrize("end", range(len(CALL) + 1, 2 * len(CALL) + 1))
def test_of_calls_that_have_to_be_made_the_limit_leaves_no_piece_as_text(end: int) -> None:
    """Nor a token of it: a call that has begun is cut where the limit is, another one is not told at all."""
    written = "".join([*CALL, "\n", *CALL])
    pieces = list(written)[: len("".join([*CALL, "\n", *CALL][:end])) - 2]
    asking = asked(tool_choice=ToolChoice(mode="required"), logprobs=0, return_token_ids=True)
    choice = answered(asking, pieces, finish="length")
    assert choice.parts[0] == ToolCall(id="call_0", name="f", arguments='{"a": 1}')
    assert all(isinstance(part, ToolCall) for part in choice.parts)
    assert (raws(choice), choice.token_ids) == (([], []), ())
    assert choice.finish.reason is StopReason.LENGTH


def test_half_a_call_of_a_model_that_ended_by_itself_is_text() -> None:
    choice = answered(asked(tool_choice=ToolChoice(mode="required")), [*CALL, "\n", *CALL[:3]])
    assert choice.parts[1] == Text(text="".join(CALL[:3]))
