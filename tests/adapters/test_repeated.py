"""The short way for repeated frames: it reads what the long way would, and nothing else."""

import re

import pytest

from adapters.canonical.events import Event, ReasoningDelta, RefusalDelta, TextDelta, ToolArgumentsDelta
from adapters.repeated import Repetition

Delta = TextDelta | ReasoningDelta | ToolArgumentsDelta
FIELD = re.compile(rb'"text":("(?:[^"\\]|\\.)*")')


def learned() -> Repetition:
    repetition = Repetition(FIELD)
    repetition.learn(b'{"text":"a","n":0}', TextDelta(0, 3, "a"))
    return repetition


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta, ToolArgumentsDelta])
def test_frames_of_text_of_thoughts_and_of_arguments_are_read(kind: type[Delta]) -> None:
    repetition, out = Repetition(FIELD), list[Event]()
    repetition.learn(b'{"text":"a"}', kind(1, 2, "a"))
    assert repetition.read([b'{"text":"b"}'], 0, out) == 1
    assert out == [kind(1, 2, "b")]


@pytest.mark.parametrize(
    "event",
    [
        RefusalDelta(0, 0, "a"),
        TextDelta(0, 0, "a", token_ids=(1,)),
        ReasoningDelta(0, 0, "a", summary=True),
        ReasoningDelta(0, 0, "a", piece=1),
    ],
)
def test_frames_that_say_more_than_their_text_are_not_learned(event: Event) -> None:
    repetition = Repetition(FIELD)
    repetition.learn(b'{"text":"a"}', event)
    assert repetition.read([b'{"text":"a"}'], 0, []) == 0


def test_frames_that_differ_in_their_text_alone_are_read() -> None:
    out: list[Event] = []
    payloads = [b"other", b'{"text":"b","n":0}', b'{"text":"","n":0}', b'{"text":"\\u00e9\\"","n":0}']
    assert learned().read(payloads, 1, out) == 4
    assert out == [TextDelta(0, 3, "b"), TextDelta(0, 3, 'é"')]


@pytest.mark.parametrize(
    "other",
    [
        b'{"text":"b","n":1}',
        b'{"text":null,"n":0}',
        b'{"text":"b","m":"c","n":0}',
        b'{"text":"b\\","n":0}',
        b'{"text":","n":0}',
        b'{"text":"\xff","n":0}',
        b'{"text":"a\nb","n":0}',
    ],
)
def test_any_other_frame_is_left_and_ends_the_repetition(other: bytes) -> None:
    repetition, out = learned(), list[Event]()
    assert repetition.read([b'{"text":"b","n":0}', other], 0, out) == 1
    assert out == [TextDelta(0, 3, "b")]
    assert repetition.read([b'{"text":"b","n":0}'], 0, out) == 0


@pytest.mark.parametrize("payload", [b'{"text":"a","text":"a"}', b'{"text":"b"}', b'{"other":"a"}'])
def test_a_frame_whose_text_is_not_found_for_sure_is_not_learned(payload: bytes) -> None:
    repetition = Repetition(FIELD)
    repetition.learn(payload, TextDelta(0, 0, "a"))
    assert repetition.read([payload], 0, []) == 0


def test_a_long_frame_is_not_learned() -> None:
    repetition, text = Repetition(FIELD), "a" * 5000
    payload = b'{"text":"%b"}' % text.encode()
    repetition.learn(payload, TextDelta(0, 0, text))
    assert repetition.read([payload], 0, []) == 0


def test_frames_are_learned_eight_times_in_vain_and_then_no_more() -> None:
    repetition = Repetition(FIELD)
    payload = b'{"text":"a"}'
    for _ in range(8):
        repetition.learn(payload, TextDelta(0, 0, "a"))
        assert repetition.read([b"other"], 0, []) == 0
    repetition.learn(payload, TextDelta(0, 0, "a"))
    assert repetition.read([payload], 0, []) == 0
