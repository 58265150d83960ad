"""Reasoning is split from the answer the same way however the text is cut, and no character of either is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.reasoning import REASONING_FORMATS, ReasoningPiece, ReasoningSplitter
from tests.adapters.text.cuts import all_cuts, cut_at

THINK = REASONING_FORMATS["think"]
MARKED = st.lists(st.sampled_from(["<think>", "</think>", "<th", "</", "\n", " ", "a", "<"]), max_size=8).map("".join)
CUTS = st.lists(st.integers(0, 40), max_size=10)


def split(
    pieces: list[str], *, form: str = "think", starts_inside: bool = False, answer_mark: str = ""
) -> tuple[str, str]:
    """Reasoning and answer. Each piece must stand in the text where it says."""
    splitter = ReasoningSplitter(REASONING_FORMATS[form], starts_inside=starts_inside, answer_mark=answer_mark)
    found: list[ReasoningPiece] = []
    for piece in pieces:
        found += splitter.feed(piece)
    found += splitter.flush()
    text = "".join(pieces)
    assert all(piece.text and text[piece.start :].startswith(piece.text) for piece in found)
    places = [piece.start for piece in found]
    assert places == sorted(places)
    return (
        "".join([piece.text for piece in found if piece.is_reasoning]),
        "".join([piece.text for piece in found if not piece.is_reasoning]),
    )


def rule(text: str, *, starts_inside: bool) -> tuple[str, str]:
    """What comes of a whole text, as one expression."""
    start = r"(?:[ \t\r\n]*<think>)?" if starts_inside else r"[ \t\r\n]*<think>"
    match = re.fullmatch(start + r"\n*(?:(.*?)\n*</think>\n*(.*)|(.*))", text, re.DOTALL)
    if match is None:
        return "", text
    closed, answer, unclosed = match.groups()
    return (unclosed, "") if closed is None else (closed, answer)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>plan</think>done", "plan", "done"),
        ("<think>\nplan\n\nmore\n</think>\n\n done\n", "plan\n\nmore", " done\n"),
        ("\n <think>plan</think>done", "plan", "done"),
        ("<think>\n\n</think>\n\nHi", "", "Hi"),
        ("<think></think>", "", ""),
        ("<think>a </thin k> b</think>c", "a </thin k> b", "c"),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("<think>trailing\n", "trailing\n", ""),
        ("<think>a</think>b</think><think>c</think>", "a", "b</think><think>c</think>"),
        ("I write <think>x</think>", "", "I write <think>x</think>"),
        ("\n\nplain", "", "\n\nplain"),
        (" <thin", "", " <thin"),
        ("", "", ""),
        ("<think>über 😊</think>那", "über 😊", "那"),
    ],
)
def test_a_text_is_split_alike_wherever_it_is_cut(text: str, reasoning: str, answer: str) -> None:
    for pieces in all_cuts(text):
        assert split(pieces) == (reasoning, answer), pieces


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("plan</think>done", "plan", "done"),
        ("\nplan\n</think>\n\ndone", "plan", "done"),
        ("<think>\nplan</think>done", "plan", "done"),
        (" plan", " plan", ""),
        ("</think>done", "", "done"),
    ],
)
def test_an_answer_may_start_inside_the_reasoning(text: str, reasoning: str, answer: str) -> None:
    for pieces in all_cuts(text):
        assert split(pieces, starts_inside=True) == (reasoning, answer), pieces


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>plan\n\n<|call|>f\n", "plan", "<|call|>f\n"),
        ("<think><|call|>f</think>", "", "<|call|>f</think>"),
        ("<think>a</think>b<|call|>f", "a", "b<|call|>f"),
        ("<think>a <|ca", "a <|ca", ""),
        ("a<|call|>f", "", "a<|call|>f"),
    ],
)
def test_a_mark_that_is_never_thought_ends_reasoning_that_was_left_open(text: str, reasoning: str, answer: str) -> None:
    for pieces in all_cuts(text):
        assert split(pieces, answer_mark="<|call|>") == (reasoning, answer), pieces


@pytest.mark.parametrize("form", [name for name, row in REASONING_FORMATS.items() if not row.channels])
def test_every_format_has_marks_of_its_own(form: str) -> None:
    row = REASONING_FORMATS[form]
    for pieces in all_cuts(f"{row.start}\nplan\n{row.end}done"):
        assert split(pieces, form=form) == ("plan", "done")


def test_whether_the_model_thinks_is_told_at_any_time() -> None:
    splitter = ReasoningSplitter(THINK)
    told = []
    for piece in ("<thi", "nk>", "a</thi", "nk>", "b"):
        splitter.feed(piece)
        told.append(splitter.is_reasoning)
    assert told == [False, True, True, False, False]
    assert ReasoningSplitter(THINK, starts_inside=True).is_reasoning


@given(text=MARKED, places=CUTS, starts_inside=st.booleans())
def test_every_cut_gives_what_the_rule_gives_at_once(text: str, places: list[int], starts_inside: bool) -> None:
    assert split(cut_at(text, places), starts_inside=starts_inside) == rule(text, starts_inside=starts_inside)


@given(text=st.text(), places=CUTS, form=st.sampled_from(sorted(REASONING_FORMATS)))
def test_text_without_marks_passes_whole(text: str, places: list[int], form: str) -> None:
    assert split(cut_at(text, places), form=form) == ("", text)


def test_nothing_is_held_back_but_what_could_become_a_mark() -> None:
    splitter = ReasoningSplitter(THINK)
    assert splitter.feed("<think>a <") == [ReasoningPiece(True, "a ", 7)]
    assert splitter.feed(" b\n") == [ReasoningPiece(True, "< b", 9)]
    assert splitter.feed("c") == [ReasoningPiece(True, "\nc", 12)]
    assert splitter.feed("</think>") == []
    assert splitter.feed("a <") == [ReasoningPiece(False, "a <", 22)]
    assert splitter.feed("") == splitter.flush() == []


def test_an_answer_that_begins_otherwise_is_never_held_again() -> None:
    splitter = ReasoningSplitter(THINK)
    assert splitter.feed("a <") == [ReasoningPiece(False, "a <", 0)]
    assert splitter.feed("<think") == [ReasoningPiece(False, "<think", 3)]
