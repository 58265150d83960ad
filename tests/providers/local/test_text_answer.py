"""Tokens become text events, whatever the steps that they came in: held text holds its tokens back."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import ChoiceFinished, Event, TextDelta
from adapters.canonical.request import Request, Sampling
from adapters.canonical.stop_reason import StopReason
from local_engine.generation import FinishReason, StepOutput, TokenOutput
from local_engine.sampling import SamplingDefaults
from providers.local.engine_request import sampling_params
from providers.local.local_model import LocalModel
from providers.local.text_answer import TextAnswer, token_logprob
from tests.scripted_engine import BOS_ID, EOS_ID, ScriptedEngine, Vocabulary

VOCABULARY = Vocabulary()
MODEL = LocalModel(
    name="m",
    engine=ScriptedEngine(),
    tokenizer=VOCABULARY,
    template=None,
    stop_token_ids=frozenset((EOS_ID,)),
    defaults=SamplingDefaults(),
)
PIECES: list[bytes] = [b"a", b"b", b"stop", b"st", b"op", b" ", b"\xf0\x9f", b"\x98\x8a", b"\xc3", b"\xa9", b"\xff"]


def token(raw: bytes) -> TokenOutput:
    return TokenOutput(VOCABULARY.add(raw), -0.5, ())


def output(pieces: Sequence[bytes], finish: FinishReason | None = None, stop_token_id: int | None = None) -> StepOutput:
    return StepOutput(tuple(map(token, pieces)), finish, stop_token_id, None, 3, 0)


def asked(logprobs: int | None = None, **sampling: object) -> Request:
    return Request(model="m", dialect="d", prompts=("x",), logprobs=logprobs, sampling=Sampling(**sampling))  # type: ignore[arg-type]


def play(request: Request, *steps: StepOutput) -> tuple[list[Event], TextAnswer]:
    answer = TextAnswer(MODEL, request)
    events: list[Event] = []
    for step in steps:
        events += answer.feed(step)
        if answer.finished:
            break
    return events, answer


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def tokens_of(events: Sequence[Event]) -> list[bytes]:
    return [entry.raw or b"" for event in events if isinstance(event, TextDelta) for entry in event.logprobs]


def finish_of(events: Sequence[Event]) -> ChoiceFinished:
    last = events[-1]
    assert isinstance(last, ChoiceFinished)
    return last


def test_a_plain_end_token_is_stop_without_a_stop_reason() -> None:
    events, answer = play(asked(), output([b"a"]), output([b"b"], "stop", EOS_ID))
    assert text_of(events) == "ab"
    assert (finish_of(events).reason, finish_of(events).stop) == (StopReason.STOP, None)
    assert answer.completion_tokens == 2


def test_a_stop_token_of_the_request_is_told() -> None:
    events, _ = play(asked(), output([b"a"], "stop", 97))
    assert finish_of(events).stop == 97


@pytest.mark.parametrize(("include", "text"), [(False, "a"), (True, "a<s>")])
def test_a_stop_string_that_is_a_special_token_ends_the_answer_though_no_text_shows_it(
    include: bool, text: str
) -> None:
    VOCABULARY.add("stop")  # from now on, pieces as long as the mark are looked for
    request = asked(stop=("<s>", "x"), include_stop=include)
    assert BOS_ID in sampling_params(MODEL, request).stop_token_ids
    events, _ = play(request, output([b"a"], "stop", BOS_ID))
    assert text_of(events) == text
    assert (finish_of(events).reason, finish_of(events).stop) == (StopReason.STOP, "<s>")


def test_a_cut_is_length_and_releases_what_was_held() -> None:
    events, _ = play(asked(stop=("stop",)), output([b"a", b"st"], "length"))
    assert text_of(events) == "ast"
    assert finish_of(events).reason is StopReason.LENGTH


def test_what_follows_a_stop_string_in_the_same_step_is_dropped_and_not_counted() -> None:
    events, answer = play(asked(0, stop=("stop",)), output([b"a", b"st", b"op", b"b"]))
    assert text_of(events) == "a"
    assert tokens_of(events) == [b"a"]
    assert finish_of(events).stop == "stop"
    assert answer.completion_tokens == 3


def test_the_stop_string_is_shown_with_its_tokens_when_asked() -> None:
    events, _ = play(asked(0, stop=("stop",), include_stop=True), output([b"a", b"st", b"op"]))
    assert text_of(events) == "astop"
    assert tokens_of(events) == [b"a", b"st", b"op"]


def test_a_stop_inside_the_first_min_tokens_is_no_stop() -> None:
    events, _ = play(asked(stop=("stop",), min_tokens=2), output([b"st", b"op", b"a"], "stop", EOS_ID))
    assert text_of(events) == "stopa"


def test_held_text_holds_its_logprobs_back() -> None:
    answer = TextAnswer(MODEL, asked(0, stop=("stop",)))
    assert answer.feed(output([b"st"])) == []
    events = answer.feed(output([b"a"]))
    assert (text_of(events), tokens_of(events)) == ("sta", [b"st", b"a"])


def test_tokens_of_one_character_go_out_together_with_their_own_bytes() -> None:
    answer = TextAnswer(MODEL, asked(0))
    assert answer.feed(output([b"\xf0\x9f"])) == []
    events = answer.feed(output([b"\x98\x8a"]))
    assert (text_of(events), tokens_of(events)) == ("😊", [b"\xf0\x9f", b"\x98\x8a"])


def test_a_token_without_text_is_still_accounted_for() -> None:
    events, _ = play(asked(0), output([b"", b"a"], "stop", EOS_ID))
    assert tokens_of(events) == [b"", b"a"]


def test_an_alternative_without_a_chance_has_a_finite_logprob() -> None:
    entry = token_logprob(VOCABULARY, TokenOutput(97, float("-inf"), ((98, float("-inf")),)))
    assert (entry.logprob, entry.top[0].logprob) == (-9999.0, -9999.0)


def test_bytes_that_are_no_character_are_spelled_out() -> None:
    assert token_logprob(VOCABULARY, TokenOutput(0xF0, -1.0, ())).text == "bytes:\\xf0"


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=6),
    stop=st.sampled_from([(), ("stop",), ("op", "b "), ("é",)]),
    finish=st.sampled_from(["stop", "length"]),
)
@pytest.mark.filterwarnings("ignore")
def test_steps_may_be_cut_anywhere(
    pieces: list[bytes], cuts: list[int], stop: tuple[str, ...], finish: FinishReason
) -> None:
    request = asked(1, stop=stop or None)
    whole, _ = play(request, output(pieces, finish, EOS_ID))
    borders = [0, *sorted(cuts), len(pieces)]
    steps = [output(pieces[a:b]) for a, b in pairwise(borders) if pieces[a:b]]
    events, _ = play(request, *steps, output([], finish, EOS_ID))
    assert text_of(events) == text_of(whole)
    assert tokens_of(events) == tokens_of(whole)
    assert events[-1] == whole[-1]
    if not stop:
        assert b"".join(tokens_of(events)).decode(errors="replace") == text_of(events)
