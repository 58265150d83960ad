"""An answer that goes on inside a call that the prompt has begun is the arguments of that call, however it is cut."""

import pytest

from adapters.text.tool_calls import BegunCall, CallArguments, CallFinished, CallPiece, CallStarted
from tests.adapters.text.cuts import all_cuts

ARGUMENTS = ' {"city": "Oslo"}'


def read(pieces: list[str]) -> list[CallPiece]:
    call = BegunCall("f", lambda: "c")
    return [found for piece in pieces for found in call.feed(piece)] + call.flush()


@pytest.mark.parametrize("pieces", list(all_cuts(ARGUMENTS)), ids=len)
def test_all_of_it_is_arguments(pieces: list[str]) -> None:
    found = read(pieces)
    assert (found[0], found[-1]) == (CallStarted("c", "f"), CallFinished())
    assert "".join(piece.text for piece in found if isinstance(piece, CallArguments)) == ARGUMENTS.lstrip()
    assert len([piece for piece in found if not isinstance(piece, CallArguments)]) == 2


def test_without_any_text_there_is_no_call() -> None:
    assert read(["", " "]) == []


def test_arguments_that_are_cut_are_given_as_far_as_they_came() -> None:
    assert read(['{"ci']) == [CallStarted("c", "f"), CallArguments('{"ci'), CallFinished()]
