"""Results of tools for an upstream whose tool messages hold text alone."""

from adapters.canonical.messages import (
    ASSISTANT,
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
from adapters.canonical.request import Request
from adapters.openai.tool_media import with_media_behind_results

ASKED = Message(role=USER, parts=(Text(text="hi"),))
CALLED = Message(role=ASSISTANT, parts=tuple([ToolCall(id=name, name="f", arguments="{}") for name in ("a", "b")]))


def image(data: str) -> Image:
    return Image(source=MediaSource(data=data, media_type="image/png"))


def result(call_id: str, *parts: Part) -> Message:
    return Message(role=TOOL, parts=(ToolResult(call_id=call_id, parts=parts),))


def request(*messages: Message) -> Request:
    return Request(model="m", dialect="openai.chat", messages=messages)


def test_results_of_text_alone_stay_the_same_object() -> None:
    asked = request(ASKED, CALLED, result("a", Text(text="x")), result("b"))
    assert with_media_behind_results(asked) is asked
    seen = request(Message(role=USER, parts=(image("u"),)))
    assert with_media_behind_results(seen) is seen


def test_media_go_behind_all_results_of_their_turn_and_each_is_named_where_it_stood() -> None:
    first, second, third = image("1"), image("2"), image("3")
    asked = request(ASKED, CALLED, result("a", Text(text="x"), first), result("b", second, third), ASKED)
    messages = with_media_behind_results(asked).messages or ()
    assert messages[:2] == (ASKED, CALLED)
    told = [part for message in messages[2:4] for part in message.parts]
    assert [
        [each.text for each in part.parts if isinstance(each, Text)] for part in told if isinstance(part, ToolResult)
    ] == [
        ["x", "[image 1: in the user's message behind the results]"],
        [f"[image {number}: in the user's message behind the results]" for number in (2, 3)],
    ]
    assert messages[4] == Message(
        role=USER,
        parts=(
            Text(text="[image 1, of the result of a]"),
            first,
            Text(text="[image 2, of the result of b]"),
            second,
            Text(text="[image 3, of the result of b]"),
            third,
        ),
    )
    assert messages[5:] == (ASKED,)


def test_media_of_the_last_results_end_the_conversation() -> None:
    messages = with_media_behind_results(request(ASKED, CALLED, result("a", image("1")), result("b"))).messages or ()
    assert [message.role for message in messages] == [USER, ASSISTANT, TOOL, TOOL, USER]
