"""The fold of events."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.errors import StreamTruncated
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
    PartReported,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
    is_output,
)
from adapters.canonical.messages import (
    Audio,
    Image,
    MediaSource,
    Opaque,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Video,
    joined_data,
    text_of,
)
from adapters.canonical.result import Folder, fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, Usage

STOP = ChoiceFinished(0, StopReason.STOP)
DATA = ProviderData("d", {"x": b"1"})
TOKEN = TokenLogprob("a", -1.0)


def test_parts_stand_in_the_order_of_their_numbers_and_texts_join() -> None:
    choice = fold(
        [
            Started("i", 1, "m"),
            ReasoningDelta(0, 0, "h"),
            ReasoningDelta(0, 0, "m"),
            ReasoningDelta(0, 0, "sum", summary=True),
            ReasoningFinished(0, 0, signature="s", encrypted="e", origin="o", provider_data=DATA),
            TextDelta(0, 1, "Os", (TOKEN,), (1,)),
            ToolCallStarted(0, 2, "c", "f", provider_data=DATA),
            TextDelta(0, 3, "!"),
            ToolArgumentsDelta(0, 2, "{"),
            TextDelta(0, 1, "lo"),
            AnnotationAdded(0, 1, b"{}", "d"),
            ToolArgumentsDelta(0, 2, "}"),
            ToolCallFinished(0, 2),
            RefusalDelta(0, 4, "n", (TOKEN,)),
            RefusalDelta(0, 4, "o"),
            HostedToolEvent(0, 5, "search", b"1", "d"),
            HostedToolEvent(0, 5, "search", b"2", "d"),
            STOP,
        ]
    ).choices[0]
    assert choice.parts == (
        Reasoning(text="hm", summary=("sum",), signature="s", encrypted="e", origin="o", provider_data=DATA),
        Text(text="Oslo", annotations=(b"{}",), annotated_by="d"),
        ToolCall(id="c", name="f", arguments="{}", provider_data=DATA),
        Text(text="!"),
        Refusal(text="no"),
        Opaque(type="search", raw=b"2", origin="d"),
    )
    assert (choice.logprobs, choice.refusal_logprobs, choice.token_ids) == ((TOKEN,), (TOKEN,), (1,))
    assert text_of(choice.parts) == "Oslo!"


def test_reasoning_keeps_its_logprobs_apart_and_its_token_ids_in_order() -> None:
    choice = fold([ReasoningDelta(0, 0, "h", False, (TOKEN,), (7,)), TextDelta(0, 1, "a", (), (8,)), STOP]).choices[0]
    assert (choice.reasoning_logprobs, choice.logprobs, choice.token_ids) == ((TOKEN,), (), (7, 8))


def test_a_summary_keeps_its_pieces_and_a_text_its_opaque_fields() -> None:
    choice = fold(
        [
            ReasoningDelta(0, 0, "a", summary=True),
            ReasoningDelta(0, 0, "b", summary=True, piece=1),
            ReasoningDelta(0, 0, "c", summary=True, piece=1),
            PartReported(0, 1, DATA),
            TextDelta(0, 1, "x", (TOKEN,)),
            PartReported(0, 2, DATA),
            RefusalDelta(0, 2, "no"),
            TextDelta(0, 3, "y", (TOKEN, TOKEN)),
            STOP,
        ]
    ).choices[0]
    assert choice.parts == (
        Reasoning(summary=("a", "bc")),
        Text(text="x", provider_data=DATA),
        Refusal(text="no", provider_data=DATA),
        Text(text="y"),
    )
    assert choice.logprob_counts == (1, 2)


def test_media_join() -> None:
    parts = fold(
        [
            MediaDelta(0, 0, "audio", data="AA", id="i", format="wav"),
            MediaDelta(0, 0, "audio", data="BB", transcript="t", expires_at=0),
            MediaDelta(0, 1, "image", data="CC"),
            MediaDelta(0, 2, "video", data="DD"),
            STOP,
        ]
    ).choices[0]
    assert parts.parts == (
        Audio(source=MediaSource(data="AABB"), format="wav", id="i", expires_at=0, transcript="t"),
        Image(source=MediaSource(data="CC")),
        Video(source=MediaSource(data="DD")),
    )


def test_the_last_usage_counts_and_reports_stay_with_their_choice() -> None:
    result = fold(
        [
            PromptReported(0, token_ids=(1,)),
            UsageReported(Usage(prompt_tokens=1)),
            ProviderReported({"a": b"1"}, "d"),
            ProviderReported({"a": b"2", "b": b"3"}, "d"),
            ProviderReported({"c": b"4"}, "d", 0),
            STOP,
            UsageReported(Usage(completion_tokens=2)),
        ]
    )
    assert result.usage == Usage(completion_tokens=2)
    assert result.provider_fields == {"a": b"2", "b": b"3"}
    assert (result.choices[0].provider_fields, result.provider_origin) == ({"c": b"4"}, "d")
    assert result.prompts == (PromptReported(0, token_ids=(1,)),)


def test_an_answer_without_a_finish_or_without_a_choice_is_truncated() -> None:
    with pytest.raises(StreamTruncated, match="choice 1"):
        fold([TextDelta(0, 0, "a"), TextDelta(1, 0, "b"), STOP])
    with pytest.raises(StreamTruncated, match="before any choice"):
        fold([Started()])


def test_a_part_cannot_begin_with_a_continuation() -> None:
    with pytest.raises(TypeError, match="ToolArgumentsDelta"):
        fold([ToolArgumentsDelta(0, 0, "x"), STOP])


def test_opaque_lists_of_one_part_join_and_anything_else_is_replaced() -> None:
    def data(raw: bytes) -> ProviderData:
        return ProviderData("d", {"x": raw})

    assert joined_data(None, None) is None
    assert joined_data(None, data(b"1")) == data(b"1")
    assert joined_data(data(b"1"), None) == data(b"1")
    assert joined_data(data(b"[1]"), data(b"[ ]")) == data(b"[1]")
    assert joined_data(data(b"[]"), data(b"[2, 3]")) == data(b"[2, 3]")
    assert joined_data(data(b"[1]"), data(b'[{"a" : 2}]')) == data(b'[1,{"a" : 2}]')
    assert joined_data(data(b"[1]"), data(b"2")) == data(b"2")


@dataclass(frozen=True)
class Piece:
    choice: int
    part: int
    text: str


@settings(max_examples=200)
@given(st.lists(st.builds(Piece, st.integers(0, 2), st.integers(0, 2), st.text(max_size=4)), min_size=1), st.data())
def test_the_fold_does_not_depend_on_batches_or_on_where_texts_are_cut(
    pieces: list[Piece], data: st.DataObject
) -> None:
    events: list[Event] = [TextDelta(piece.choice, piece.part, piece.text) for piece in pieces]
    finer: list[Event] = []
    for piece in pieces:
        cut = data.draw(st.integers(0, len(piece.text)))
        finer += [TextDelta(piece.choice, piece.part, text) for text in (piece.text[:cut], piece.text[cut:])]
    finishes = [ChoiceFinished(index, StopReason.STOP) for index in {piece.choice for piece in pieces}]
    folder = Folder()
    for event in finer + list(finishes):
        folder.feed([event])
    assert folder.result() == fold(events + list(finishes))


@pytest.mark.parametrize(
    ("event", "commits"),
    [
        (Started("i"), False),
        (PromptReported(0, token_ids=(1,)), False),
        (UsageReported(Usage()), False),
        (ProviderReported({}, "d"), False),
        (TextDelta(0, 0, ""), False),
        (TextDelta(0, 0, "a"), True),
        (TextDelta(0, 0, "", (TOKEN,)), True),
        (TextDelta(0, 0, "", (), (1,)), True),
        (ReasoningDelta(0, 0, ""), False),
        (ReasoningDelta(0, 0, "a"), True),
        (RefusalDelta(0, 0, ""), False),
        (RefusalDelta(0, 0, "a"), True),
        (ReasoningFinished(0, 0, signature="s"), True),
        (MediaDelta(0, 0, "audio"), True),
        (ToolCallStarted(0, 0, "c", "f"), True),
        (HostedToolEvent(0, 0, "t", b"1", "d"), True),
        (STOP, True),
    ],
    ids=str,
)
def test_only_real_output_commits_an_answer_to_its_target(event: Event, commits: bool) -> None:
    assert is_output(event) is commits
