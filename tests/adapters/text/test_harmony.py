"""gpt-oss's channels become reasoning, calls and text, wherever the text is cut; no character is lost."""

import re
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.calls.book import CallArguments, CallFinished, CallStarted, TextPiece
from adapters.text.harmony import HARMONY_MARKS, HarmonyReader
from adapters.text.reasoning import ReasoningPiece
from tests.adapters.text.cuts import all_cuts, cut_at

Seen = list[tuple[str, str]]
"""(thought | text | name of the tool, what was written)."""

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
CUTS = st.lists(st.integers(0, 200), max_size=10)
SNIPPETS = [
    *HARMONY_MARKS,
    ANALYSIS,
    FINAL,
    NEXT,
    CALL,
    " to=functions.f",
    "analysis",
    "assistant",
    "a",
    "\n",
    "<|",
    "<",
    "😊",
]


def seen(pieces: list[str], *, parallel: bool = True, is_cut: bool = False) -> Seen:
    numbers = count()
    reader = HarmonyReader(frozenset(("f", "g")), lambda: f"c{next(numbers)}", parallel=parallel)
    found = [part for piece in pieces for part in reader.feed(piece)] + reader.flush(is_cut=is_cut)
    text, behind = "".join(pieces), 0
    result: Seen = []
    for part in found:
        match part:
            case ReasoningPiece() | TextPiece():
                kind = "text" if isinstance(part, TextPiece) else "thought"
                assert part.text
                assert part.start >= behind
                assert text[part.start :].startswith(part.text)
                behind = part.start + len(part.text)
                if result and result[-1][0] == kind:
                    result[-1] = (kind, result[-1][1] + part.text)
                else:
                    result.append((kind, part.text))
            case CallStarted():
                result.append((part.name, ""))
            case CallArguments():
                result[-1] = (result[-1][0], result[-1][1] + part.text)
            case CallFinished():
                assert result[-1][0] in "fg"
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ANALYSIS}plan\n{NEXT}{FINAL}Hi <b>.<|return|>", [("thought", "plan\n"), ("text", "Hi <b>.")]),
        (f"{ANALYSIS}plan{NEXT}{CALL}", [("thought", "plan"), ("f", '{"a": 1}')]),
        (
            f"{ANALYSIS}a{NEXT}<|channel|>commentary<|message|>Look.{NEXT}{CALL}",
            [("thought", "a"), ("text", "Look."), ("f", '{"a": 1}')],
        ),
        ("<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>", [("g", "{}")]),
        (" to=functions.g<|channel|>commentary<|message|><|call|>", [("g", "{}")]),
        (CALL.replace("functions.f", "f"), [("f", '{"a": 1}')]),
        (f"{CALL}<|start|>assistant{CALL}", [("f", '{"a": 1}')] * 2),
        (f"{ANALYSIS}never closed <|en", [("thought", "never closed <|en")]),
        (f"{ANALYSIS}a<|start|>assistant{FINAL}b", [("thought", "a"), ("text", "b")]),
        (f"{FINAL}a{NEXT}{ANALYSIS}b{NEXT}{FINAL}c", [("text", "a"), ("thought", "b"), ("text", "c")]),
        ("more of a text that the prompt began<|return|>", [("text", "more of a text that the prompt began")]),
        # The model's own faults, and what is no call.
        (f"<|channel|>commentary?{NEXT}{ANALYSIS}a{NEXT}{FINAL}b",
         [("text", "<|channel|>commentary?"), ("thought", "a"), ("text", "b")]),
        (f"<|channel|>??<|start|>assistant{ANALYSIS}a{NEXT}{FINAL}b",
         [("text", "<|channel|>??"), ("thought", "a"), ("text", "b")]),
        (f"<|channel|>commentary to=assistant{ANALYSIS}a{NEXT}{FINAL}b", [("thought", "a"), ("text", "b")]),
        ("<|channel|>commentary to=all<|message|>Look.", [("text", "Look.")]),
        (CALL.replace("functions.f", "functions.evil"), [("text", CALL.replace("functions.f", "functions.evil")[:-8])]),
        (CALL.replace("functions.f", "browser"), [("text", CALL.replace("functions.f", "browser")[:-8])]),
        ("<|channel|>analy", [("text", "<|channel|>analy")]),
        ("<|channel|>" + "x" * 600 + "<|message|>", [("text", "<|channel|>" + "x" * 600 + "<|message|>")]),
        ("<|message|>plain", [("text", "plain")]),
        (CALL[:-8] + " and more", [("f", '{"a": 1} and more')]),
        (CALL[:-12], [("f", '{"a"')]),
        ("", []),
    ],
)  # fmt: skip
def test_a_text_is_read_alike_wherever_it_is_cut(text: str, expected: Seen) -> None:
    for pieces in all_cuts(text):
        assert seen(pieces) == expected, pieces


@given(
    parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=12), places=CUTS, parallel=st.booleans()
)
def test_any_text_is_read_alike_wherever_it_is_cut(parts: list[str], places: list[int], parallel: bool) -> None:
    text = "".join(parts)
    assert seen(cut_at(text, places), parallel=parallel) == seen([text], parallel=parallel)


FORM = re.compile(
    r"(?:<\|(?:end|call|return)\|>|(?:(?:<\|(?:start|channel|message)\|>| to=).{0,520}?<\|message\|>|<\|message\|>))*",
    re.DOTALL,
)


@given(parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=12))
def test_only_marks_and_headers_are_not_shown(parts: list[str]) -> None:
    text, at = "".join(parts), 0
    reader = HarmonyReader((), lambda: "c")
    for part in [*reader.feed(text), *reader.flush()]:
        assert isinstance(part, TextPiece | ReasoningPiece)
        assert FORM.fullmatch(text, at, part.start), text[at : part.start]
        at = part.start + len(part.text)
    assert FORM.fullmatch(text, at), text[at:]


@given(text=st.text(), places=CUTS)
def test_text_without_marks_passes_whole(text: str, places: list[int]) -> None:
    assert seen(cut_at(text, places)) == ([("text", text)] if text else [])


def test_arguments_and_thoughts_go_out_while_they_arrive() -> None:
    reader = HarmonyReader({"f"}, lambda: "c")
    assert reader.feed(f"{ANALYSIS}pl") == [ReasoningPiece(True, "pl", len(ANALYSIS))]
    assert reader.is_reasoning
    assert reader.feed("an<|") == [ReasoningPiece(True, "an", len(ANALYSIS) + 2)]
    reader.feed(f"end|><|start|>assistant{CALL[:-16]}")
    assert reader.feed('"a') == [CallArguments('"a')]


def test_no_cut_leaves_the_header_of_a_message_as_text() -> None:
    header = f"{NEXT}{CALL}"
    header = header[: header.index("<|message|>")]
    for end in range(header.index("assistant"), len(header)):
        for pieces in ([f"{ANALYSIS}plan{header[:end]}"], list(f"{ANALYSIS}plan{header[:end]}")):
            assert seen(pieces, is_cut=True) == [("thought", "plan")], end
    assert seen([f"{ANALYSIS}plan{header}"])[-1][0] == "text"  # the model itself ended
