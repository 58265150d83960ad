"""How much a model thinks: what its template is told, and a budget that its answer cannot pass."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import ReasoningOptions, Request, Sampling, Tool
from adapters.text.reasoning import REASONING_FORMATS
from local_engine.generation import TokenMask
from providers.local.chat_template import ChatTemplate
from providers.local.settings import LocalModelSettings
from providers.local.text_formats import TextFormats, text_formats
from providers.local.thinking import budget_mask, thinking_variables
from tests.scripted_engine import Vocabulary

THINK = REASONING_FORMATS["think"]
HARMONY = REASONING_FORMATS["harmony"]
VOCABULARY = Vocabulary(
    ["<think>", "</think>", *["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "assistant", "analysis", "final"]]
)
WORDS = -(-VOCABULARY.vocab_size // 32)
MESSAGES = (Message(role=USER, parts=(Text(text="hi"),)),)


@pytest.mark.parametrize(
    ("reads", "options", "told"),
    [
        ("{{ enable_thinking }}", ReasoningOptions(effort="none"), {"enable_thinking": False}),
        ("{{ enable_thinking }}", ReasoningOptions(effort="low"), {"enable_thinking": True}),
        ("{{ thinking }}", ReasoningOptions(mode="adaptive"), {"thinking": True}),
        ("{{ thinking }}", ReasoningOptions(budget_tokens=9), {"thinking": True}),
        ("{{ thinking }}", ReasoningOptions(budget_tokens=0), {"thinking": False}),
        ("{{ thinking_budget }}", ReasoningOptions(budget_tokens=9), {"thinking_budget": 9}),
        ("{{ reasoning_effort }}", ReasoningOptions(effort="high"), {"reasoning_effort": "high"}),
        ("{{ reasoning_effort }}", ReasoningOptions(budget_tokens=9), {}),
        ("{{ thinking }}", None, {}),
    ],
)
def test_a_template_is_told_by_the_variables_that_it_reads(
    reads: str, options: ReasoningOptions | None, told: dict[str, object]
) -> None:
    assert thinking_variables(ChatTemplate(reads), THINK, options) == told


@pytest.mark.parametrize(
    ("reads", "options", "param"),
    [
        ("{{ x }}", ReasoningOptions(effort="low"), "reasoning_effort"),
        ("{{ reasoning_effort }}", ReasoningOptions(effort="none"), "reasoning_effort"),
        ("{{ reasoning_effort }}", ReasoningOptions(mode="between_tools"), "thinking"),
    ],
)
def test_what_a_model_cannot_be_told_is_refused_by_name(reads: str, options: ReasoningOptions, param: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        thinking_variables(ChatTemplate(reads), HARMONY, options)
    assert caught.value.param == param


def test_a_model_that_never_thinks_may_be_told_not_to() -> None:
    """It may have been chosen before its files said so."""
    plain = ChatTemplate("{{ messages }}")
    assert thinking_variables(plain, None, ReasoningOptions(effort="none")) == {}
    with pytest.raises(UnsupportedParameter):
        thinking_variables(plain, None, ReasoningOptions(effort="low"))


def mask(
    formats: TextFormats, budget: int | None, *, opens: bool = False, inner: TokenMask | None = None, **fields: object
) -> TokenMask | None:
    request = Request(
        model="m",
        dialect="d",
        **{"messages": MESSAGES, "reasoning": ReasoningOptions(budget_tokens=budget), **fields},  # type: ignore[arg-type]
    )
    return budget_mask(formats, VOCABULARY, request, opens_reasoning=opens, inner=inner)


def allowed(found: TokenMask) -> set[int]:
    row: npt.NDArray[np.uint32] = np.zeros(WORDS, np.uint32)
    found.fill(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def written(found: TokenMask, tokens: list[int]) -> list[int]:
    """What a model writes that wants to write these tokens, as long as it may."""
    answer: list[int] = []
    wanted = iter(tokens)
    while True:
        free = allowed(found)
        token = next(iter(free)) if len(free) == 1 else next(wanted, None)
        if token is None:
            return answer
        answer.append(token)
        found.accept(token)


def ids(*pieces: str) -> list[int]:
    return [VOCABULARY.add(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("budget", "opens", "wants", "writes"),
    [
        (2, False, ("<think>", "a", "b", "c"), ("<think>", "a", "b", "</think>", "c")),
        (2, False, ("<think>", "a", "</think>", "c", "d", "e"), ("<think>", "a", "</think>", "c", "d", "e")),
        (0, False, ("<think>", "a"), ("<think>", "</think>", "a")),
        (0, True, ("a", "b"), ("</think>", "a", "b")),
        (1, True, ("a", "b"), ("a", "</think>", "b")),
        (1, False, ("a", "b", "c"), ("a", "b", "c")),
    ],
)
def test_a_budget_that_is_used_up_makes_the_model_close_its_reasoning(
    budget: int, opens: bool, wants: tuple[str, ...], writes: tuple[str, ...]
) -> None:
    found = mask(TextFormats(THINK), budget, opens=opens)
    assert found is not None
    assert written(found, ids(*wants)) == ids(*writes)


def test_a_mark_of_several_tokens_is_written_to_its_end() -> None:
    found = mask(TextFormats(REASONING_FORMATS["mistral"]), 1, opens=True)
    assert found is not None
    answer = written(found, ids("a", "b"))
    assert VOCABULARY.decode(answer) == "a[/THINK]b"


def test_a_character_is_finished_before_the_reasoning_is_closed() -> None:
    found = mask(TextFormats(THINK), 1, opens=True)
    assert found is not None
    smile = list("😊".encode())
    assert written(found, [*smile, *ids("b")]) == [*smile, *ids("</think>", "b")]


def test_harmonys_analysis_is_closed_by_opening_the_final_channel() -> None:
    formats = text_formats(ChatTemplate("<|channel|>"), VOCABULARY, LocalModelSettings())
    found = mask(formats, 1)
    assert found is not None
    head = ids("<|channel|>", "analysis", "<|message|>")
    expected = [*head, *ids("a", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "b")]
    assert written(found, [*head, *ids("a", "b")]) == expected


def test_with_tools_harmonys_next_message_may_be_a_call_but_no_more_thoughts() -> None:
    formats = text_formats(ChatTemplate("<|channel|>"), VOCABULARY, LocalModelSettings())
    found = mask(formats, 1, tools=(Tool(kind="function", name="f"),))
    assert found is not None
    head = ids("<|channel|>", "analysis", "<|message|>", "a", "<|end|>", "<|start|>", "assistant", "<|channel|>")
    assert written(found, ids("<|channel|>", "analysis", "<|message|>", "a")) == head
    assert set(range(VOCABULARY.vocab_size)) - allowed(found) == set(ids("analysis"))
    found.accept(ids("final")[0])
    assert set(range(VOCABULARY.vocab_size)) <= allowed(found)


def test_a_grammar_says_itself_what_follows_on_harmonys_analysis() -> None:
    formats = text_formats(ChatTemplate("<|channel|>"), VOCABULARY, LocalModelSettings())
    found = mask(formats, 0, inner=OnlyA())
    assert found is not None
    for token in ids("<|channel|>", "analysis", "<|message|>"):
        found.accept(token)
    assert allowed(found) == set(ids("<|end|>"))
    found.accept(ids("<|end|>")[0])
    assert allowed(found) == set(ids("a"))


class OnlyA:
    """A mask that allows one token at all times, and says when it has seen two."""

    def __init__(self) -> None:
        self.seen = 0

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        row[VOCABULARY.add("a") // 32] = 1 << VOCABULARY.add("a") % 32

    def accept(self, token_id: int) -> bool:
        self.seen += 1
        return self.seen == 2

    def fork(self) -> "OnlyA":
        twin = OnlyA()
        twin.seen = self.seen
        return twin


def test_another_mask_holds_beside_the_budget() -> None:
    found = mask(TextFormats(THINK), 1, opens=True, inner=OnlyA())
    assert found is not None
    assert allowed(found) == set(ids("a"))
    assert not found.accept(ids("a")[0])
    assert allowed(found) == set(ids("</think>"))
    assert found.accept(ids("</think>")[0])
    assert allowed(found) == set(ids("a"))


def test_without_a_budget_nothing_is_masked() -> None:
    assert mask(TextFormats(THINK), None) is None
    assert mask(TextFormats(), 5) is None
    assert mask(TextFormats(THINK), 5, messages=None, prompts=("hi",)) is None


def test_beams_have_no_budget() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        mask(TextFormats(THINK), 5, sampling=Sampling(use_beam_search=True))
    assert caught.value.param == "thinking_token_budget"


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "</th", "\n"]), max_size=8), st.integers(0, 3))
def test_a_fork_goes_on_as_the_mask_that_it_was_taken_from(pieces: list[str], budget: int) -> None:
    found = mask(TextFormats(THINK), budget)
    assert found is not None
    for token in ids(*pieces):
        twin = found.fork()
        assert allowed(twin) == allowed(found)
        twin.accept(token)
        found.accept(token)
        assert allowed(twin) == allowed(found)
