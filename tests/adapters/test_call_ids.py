"""Calls that share an id over the turns of a conversation."""

from itertools import count

from adapters.call_ids import OwnIds, with_own_ids
from adapters.canonical.messages import ASSISTANT, TOOL, USER, Message, Text, ToolCall, ToolResult

ASKED = Message(role=USER, parts=(Text(text="hi"),))


def called(*ids: str) -> Message:
    return Message(role=ASSISTANT, parts=tuple([ToolCall(id=call_id, name="f", arguments="{}") for call_id in ids]))


def answered(*ids: str) -> Message:
    return Message(role=TOOL, parts=tuple([ToolResult(call_id=call_id, parts=(Text(text="ok"),)) for call_id in ids]))


def ids_of(*messages: Message) -> list[str]:
    parts = [part for message in with_own_ids(messages) for part in message.parts]
    return [
        part.id if isinstance(part, ToolCall) else part.call_id
        for part in parts
        if isinstance(part, ToolCall | ToolResult)
    ]


def test_a_conversation_whose_calls_have_ids_of_their_own_stays_the_same_object() -> None:
    messages = (ASKED, called("a", "b"), answered("b", "a"), called("c"), answered("c"))
    assert with_own_ids(messages) is messages


def test_a_call_with_an_id_of_an_earlier_one_gets_another_and_its_result_follows() -> None:
    said = (ASKED, called("a"), answered("a"), called("a"), answered("a"), called("a"), answered("a"))
    assert ids_of(*said) == ["a", "a", "a_2", "a_2", "a_3", "a_3"]


def test_calls_of_one_turn_that_share_an_id_are_answered_in_their_order() -> None:
    assert ids_of(called("a", "a", "b"), answered("a", "b", "a")) == ["a", "a_2", "b", "a", "b", "a_2"]


def test_an_id_that_is_made_is_no_other_calls() -> None:
    said = (called("a"), answered("a"), called("a"), answered("a"), called("a_2"), answered("a_2"))
    assert ids_of(*said) == ["a", "a", "a_3", "a_3", "a_2", "a_2"]


def test_a_result_of_no_call_and_a_second_result_stay_what_they_are() -> None:
    assert ids_of(answered("x"), called("a"), answered("a", "a"), called("a"))[-1] == "a_2"
    assert ids_of(answered("x"), called("a"), answered("a", "a"), called("a"))[:4] == ["x", "a", "a", "a"]


def test_a_call_of_an_answer_keeps_its_id_unless_another_has_it() -> None:
    numbers = count(1)
    ids = OwnIds(lambda: f"made_{next(numbers)}", (ASKED, called("a", "b"), answered("a", "b", "c")))
    given = ("c", "a", "c", None, "", "d")
    assert [ids.of(one) for one in given] == ["c", "made_1", "made_2", "made_3", "made_4", "d"]
    assert OwnIds(lambda: "", None).of("a") == "a"
