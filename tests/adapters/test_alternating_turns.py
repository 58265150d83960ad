"""Turns of a conversation in any dialect: what is joined, what leads, and which results belong to which calls."""

from collections.abc import Iterator

import pytest

from adapters.alternating_turns import Block, alternating_turns, parted, texts_in
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Image,
    MediaSource,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
)


class Words:
    """Writes texts, calls and results as they are told apart easily."""

    vendor = "Acme"

    def text(self, text: str) -> Block:
        return {"text": text}

    def written(self, message: Message) -> Iterator[tuple[Part, list[Block]]]:
        for part in message.parts:
            match part:
                case Text():
                    yield part, [{"text": part.text}] if part.text else []
                case ToolCall():
                    yield part, [{"call": part.id}]
                case ToolResult():
                    yield part, [{"result": part.call_id}]
                case _:
                    yield part, []


def said(role: str, *parts: Part | str, name: str | None = None) -> Message:
    made = tuple([Text(text=part) if isinstance(part, str) else part for part in parts])
    return Message(role=role, parts=made, name=name)


def call(name: str) -> ToolCall:
    return ToolCall(id=name, name="f", arguments="{}")


def result(name: str) -> ToolResult:
    return ToolResult(call_id=name, parts=(Text(text="1"),))


TURN: tuple[tuple[str, Part], ...] = ((ASSISTANT, call("x")), (TOOL, result("x")))


def turns(*messages: Message, keeps_instructions: bool = False) -> list[tuple[str, list[Block]]]:
    found = alternating_turns(messages, Words(), keeps_instructions=keeps_instructions)
    return [(turn.role, turn.content) for turn in found]


def test_neighbours_of_one_role_are_one_turn_also_around_a_turn_that_says_nothing() -> None:
    assert turns(said(USER, "a"), said(ASSISTANT, ""), said(USER, "b"), said(ASSISTANT, "c")) == [
        (USER, [{"text": "a"}, {"text": "b"}]),
        (ASSISTANT, [{"text": "c"}]),
    ]


def test_results_stand_before_what_the_user_said_with_them() -> None:
    found = turns(
        said(USER, "q"), said(ASSISTANT, call("x"), call("y")), said(TOOL, result("y")), said(USER, "go", result("x"))
    )
    assert found[2] == (USER, [{"result": "y"}, {"result": "x"}, {"text": "go"}])


def test_a_call_that_has_the_id_of_an_earlier_one_is_told_apart_from_it() -> None:
    found = turns(said(USER, "q"), *[said(role, part) for _ in range(2) for role, part in TURN])
    assert [blocks for _, blocks in found[1:]] == [
        [{"call": "x"}],
        [{"result": "x"}],
        [{"call": "x_2"}],
        [{"result": "x_2"}],
    ]


def test_a_users_name_stands_before_its_first_text_alone() -> None:
    assert turns(said(USER, "hi", "you", name="ann"), said(USER, "yo", name="bob")) == [
        (USER, [{"text": "ann: hi"}, {"text": "you"}, {"text": "bob: yo"}])
    ]


def test_instructions_that_lead_stand_apart_and_later_ones_are_marked_or_kept() -> None:
    first, late = said(SYSTEM, "be kind"), said(SYSTEM, "be brief")
    leading, rest = parted((first, said(USER, "q"), late))
    assert (leading, rest) == ((first,), (said(USER, "q"), late))
    assert turns(*rest) == [(USER, [{"text": "q"}, {"text": "<system>\nbe brief\n</system>"}])]
    assert turns(*rest, keeps_instructions=True) == [(USER, [{"text": "q"}]), (SYSTEM, [{"text": "be brief"}])]
    with pytest.raises(UnsupportedParameter, match="text alone"):
        texts_in(said(SYSTEM, Image(source=MediaSource(url="https://a.example/x.png"))))


def test_an_instruction_between_a_call_and_its_result_does_not_part_them() -> None:
    messages = (said(USER, "q"), said(ASSISTANT, call("x")), said(SYSTEM, "hm"), said(TOOL, result("x")))
    assert turns(*messages)[2] == (USER, [{"result": "x"}, {"text": "<system>\nhm\n</system>"}])
    assert [role for role, _ in turns(*messages, keeps_instructions=True)] == [USER, ASSISTANT, SYSTEM, USER]


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ((said(USER, result("x")),), "'x' answers no call"),
        ((said(USER, "q"), said(ASSISTANT, call("x"))), "'x' has no result"),
        ((said(USER, "q"), said(ASSISTANT, call("x")), said(USER, "go")), "'x' has no result"),
        ((said(USER, "q"), said(ASSISTANT, call("x")), said(TOOL, result("x"), result("x"))), "'x' has two results"),
        ((said(USER, "q"), said(ASSISTANT, call("x")), said(TOOL, result("y"))), "'y' answers no call"),
        ((said(USER, ""),), "expected a message"),
        ((said("critic", "q"),), "Acme has no role critic"),
    ],
)
def test_what_does_not_belong_together_is_named(messages: tuple[Message, ...], what: str) -> None:
    with pytest.raises((InvalidRequest, UnsupportedParameter), match=what):
        turns(*messages)


def test_instructions_alone_are_no_conversation() -> None:
    with pytest.raises(InvalidRequest, match="beside the system's"):
        parted((said(SYSTEM, "be kind"),))
