"""Pieces of a summary as one text, in every client's words, streamed and whole."""

import json
from collections.abc import Callable

import pytest

from adapters.canonical.events import ChoiceFinished, Event, ReasoningDelta, Started, TextDelta
from adapters.canonical.messages import Reasoning
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.thought_text import ThoughtText, thought_text
from tests.adapters.anthropic.exchange import messages
from tests.adapters.gemini.exchange import generate
from tests.adapters.ollama.exchange import ollama
from tests.adapters.openai.exchange import chat
from tests.adapters.sides import Sides

TOLD: list[Event] = [
    Started(),
    ReasoningDelta(0, 0, "**A", summary=True),
    ReasoningDelta(0, 0, "**", summary=True),
    ReasoningDelta(0, 0, "**B**", summary=True, piece=1),
    TextDelta(0, 1, "hi"),
    ChoiceFinished(0, StopReason.STOP, "stop"),
]


def test_pieces_stand_apart_and_deltas_of_one_do_not() -> None:
    text = ThoughtText()
    assert "".join([text.of(event) for event in TOLD if isinstance(event, ReasoningDelta)]) == "**A**\n\n**B**"
    assert thought_text(Reasoning(summary=("**A**", "**B**"))) == "**A**\n\n**B**"


def test_what_a_model_thought_itself_goes_before_its_summary_and_stays_as_it_is() -> None:
    assert thought_text(Reasoning(text="raw", summary=("a", "b"))) == "raw"
    assert [ThoughtText().of(ReasoningDelta(0, 0, "a")), ThoughtText().of(ReasoningDelta(0, 0, "b"))] == ["a", "b"]


def test_choices_and_parts_have_pieces_of_their_own() -> None:
    text = ThoughtText()
    places = [(0, 0, 0), (1, 0, 1), (0, 2, 1), (0, 0, 1)]
    told = [text.of(ReasoningDelta(choice, part, "x", summary=True, piece=piece)) for choice, part, piece in places]
    assert told == ["x", "x", "x", "\n\nx"]


@pytest.mark.parametrize("make", [chat, messages, generate, ollama])
def test_every_client_sees_the_pieces_apart(make: Callable[..., Sides]) -> None:
    assert json.dumps("**A**\n\n**B**").encode() in make().answer(TOLD)
    assert json.dumps("\n\n**B**").encode() in make().renderer().feed(TOLD)
    assert fold(TOLD).choices[0].parts[0] == Reasoning(summary=("**A**", "**B**"))
