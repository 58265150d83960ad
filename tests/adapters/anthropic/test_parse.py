"""What a Messages body becomes in the canonical form, where walking its fields does not tell."""

from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    CacheHint,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)
from adapters.canonical.request import TemplateOptions, ToolChoice
from tests.adapters.anthropic.exchange import messages

USER = {"role": "user", "content": "hi"}


def parsed(*said: dict[str, Any], **fields: Any) -> tuple[Message, ...]:
    found = messages(messages=list(said), **fields).request.messages
    assert found is not None
    return found


def test_a_system_prompt_is_the_first_message() -> None:
    first, second = parsed(USER, system="Be kind.")
    assert first == Message(role="system", parts=(Text(text="Be kind."),))
    assert second == Message(role="user", parts=(Text(text="hi"),))
    assert parsed(USER, system="") == (second,)


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}], ids=str)
def test_a_turn_of_the_user_without_content_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(USER, {"role": "user", **content})
    assert caught.value.param == "messages[1].content"


def test_only_an_answer_may_have_been_empty() -> None:
    empty: dict[str, Any] = {"role": "assistant", "content": []}
    assert parsed(USER, empty, USER)[1] == Message(role="assistant")
    with pytest.raises(InvalidRequest):
        parsed(USER, {"role": "assistant"}, USER)


def test_the_results_of_a_turn_are_tool_messages_and_come_before_what_the_user_said() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.example"}}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": [picture], "is_error": True}
    turn = {"role": "user", "content": [{"type": "text", "text": "look"}, answer]}
    _, called, result, said = parsed(USER, call, turn)
    assert called.parts == (ToolCall(id="a", name="f", arguments="{}"),)
    assert result.role == "tool"
    (part,) = result.parts
    assert isinstance(part, ToolResult)
    assert (part.call_id, part.is_error, type(part.parts[0])) == ("a", True, Image)
    assert said == Message(role="user", parts=(Text(text="look"),))


def called(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def answered(*said: str) -> list[dict[str, Any]]:
    """Results of calls, and `hi`."""
    hi = {"type": "text", "text": "hi"}
    return [hi if each == "hi" else {"type": "tool_result", "tool_use_id": each} for each in said]


@pytest.mark.parametrize(
    ("said", "order"),
    [
        ([("assistant", [called("a")]), ("assistant", [called("b")]), ("user", answered("a", "b"))], ["ab", "a", "b"]),
        (
            [("assistant", [called("a"), called("b")]), ("user", answered("a", "hi")), ("user", answered("b"))],
            ["ab", "a", "b", "hi"],
        ),
        ([("assistant", "x"), ("assistant", [called("a")]), ("user", "hi"), ("user", answered("a"))], ["a", "a", "hi"]),
        ([("user", "hi"), ("user", "hi")], ["hi", "hi"]),
    ],
    ids=["calls in several messages", "results in several messages", "text before a result", "no calls"],
)
def test_neighbours_of_one_role_are_one_turn(said: list[tuple[str, Any]], order: list[str]) -> None:
    _, *found = parsed(USER, *[{"role": role, "content": content} for role, content in said])
    seen = []
    for message in found:
        ids = [getattr(part, "id", None) or getattr(part, "call_id", None) for part in message.parts]
        seen.append("".join([each for each in ids if each]) or text_of(message.parts))
    assert seen == order


def test_a_plain_pdf_is_a_file_and_a_cited_one_a_document() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}
    plain = {"type": "document", "source": source, "title": "a.pdf"}
    (message,) = parsed({"role": "user", "content": [plain, {**plain, "citations": {"enabled": True}}]})
    file, document = message.parts
    assert isinstance(file, File)
    assert file.filename == "a.pdf"
    assert isinstance(document, Document)
    assert document.citations is True


def test_a_block_that_nobody_knows_stays_whole_with_its_maker() -> None:
    (message,) = parsed({"role": "user", "content": [{"type": "later", "x": [1]}, {"type": "text", "text": "a"}]})
    assert message.parts[0] == Opaque(type="later", raw=b'{"type": "later", "x": [1]}', origin="anthropic.messages")


def test_cache_hints_stand_with_their_parts_and_tools() -> None:
    hint = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    exchange = messages(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"} | hint]}],
        tools=[{"name": "f", "input_schema": {}} | hint],
    )
    assert exchange.request.messages is not None
    assert exchange.request.tools is not None
    assert exchange.request.messages[0].parts[0].cache == CacheHint(ttl="1h")
    assert exchange.request.tools[0].cache == CacheHint(ttl="1h")


@pytest.mark.parametrize(
    ("last", "goes_on"),
    [
        ({"role": "assistant", "content": "{"}, True),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, False),
        (USER, False),
    ],
)
def test_the_answer_goes_on_from_a_last_turn_of_the_assistant(last: dict[str, Any], goes_on: bool) -> None:
    template = messages(messages=[USER, last]).request.template
    prefill = TemplateOptions(continue_final_message=True, add_generation_prompt=False)
    assert template == (prefill if goes_on else None)


@pytest.mark.parametrize(
    ("choice", "parsed_choice", "parallel"),
    [
        ({"type": "auto"}, ToolChoice(mode="auto"), None),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice(mode="required"), None),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            ToolChoice(mode="required", name="f"),
            False,
        ),
        ({"type": "none"}, ToolChoice(mode="none"), None),
    ],
)
def test_a_tool_choice_is_a_mode_and_whether_calls_may_be_parallel(
    choice: dict[str, Any], parsed_choice: ToolChoice, parallel: bool | None
) -> None:
    request = messages(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice).request
    assert (request.tool_choice, request.parallel_tool_calls) == (parsed_choice, parallel)


def test_messages_are_named_by_their_place_in_the_body() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    answered = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "b"}]}
    request = messages(messages=[USER, call, answered, USER], system="c").request
    assert [message.role for message in request.messages or ()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "user",
    ]
    in_order = ("messages[0]", "messages[1]", "messages[2]", "messages[2]", "messages[3]")
    assert request.message_paths == ("system", *in_order)


def test_a_line_for_the_vendors_books_reaches_the_vendor_and_is_text_for_nobody_else() -> None:
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"}
    kind = {"type": "text", "text": "Be kind."}
    asked = messages(messages=[USER], system=[line, kind])
    system, _ = asked.request.messages or ()
    own, said = system.parts
    assert isinstance(own, Opaque)
    assert (own.type, said) == ("x-anthropic-billing-header", Text(text="Be kind."))
    assert asked.sent()["system"] == [line, kind]
    assert messages(messages=[USER], system=[line]).sent()["system"] == [line]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "x-anthropic-billing-header: cch=0a1b2;\nBe kind."},
        {"type": "text", "text": "x-anthropic-billing-header: cch=0a1b2;", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Ignore x-anthropic-billing-header: it is for others."},
    ],
    ids=["with more behind it", "with a cache hint", "in a sentence"],
)
def test_what_is_more_than_a_line_for_the_vendors_books_stays_text(block: dict[str, Any]) -> None:
    asked = messages(messages=[USER], system=[block, {"type": "text", "text": "b"}])
    assert isinstance((asked.request.messages or ())[0].parts[0], Text)
    assert asked.sent()["system"][0] == block


def test_an_answer_may_fill_the_window_where_it_has_no_room_for_the_limit() -> None:
    assert messages(messages=[USER], max_tokens=10**6).request.open_ended
