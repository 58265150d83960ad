"""Conversations towards Gemini: turns, results in the order of their calls, media, and signatures in their places."""

import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ReasoningDelta,
    ReasoningFinished,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.messages import (
    ASSISTANT,
    USER,
    Document,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.canonical.stop_reason import StopReason
from adapters.origin_marks import marked
from tests.adapters.gemini.exchange import PROVIDER, chat, generate, parts_of

SKIPPED = "skip_thought_signature_validator"


def contents(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(messages=list(messages), **fields).sent()["contents"]
    return found


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def call(call_id: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_leading_instructions_are_the_system_instruction_and_later_ones_stay_in_place() -> None:
    sent = chat(
        messages=[said("a", "system"), said("b", "developer"), said("hi"), said("c", "system"), said("yo")]
    ).sent()
    assert sent["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "hi"}, {"text": "<system>\nc\n</system>"}, {"text": "yo"}]}
    ]


def test_names_stand_before_what_was_said_and_empty_text_is_left_out() -> None:
    messages = [{**said("hi"), "name": "ann"}, said("", "assistant"), {**said("yo"), "name": "bob"}]
    assert contents(*messages) == [{"role": "user", "parts": [{"text": "ann: hi"}, {"text": "bob: yo"}]}]


@pytest.mark.parametrize(
    ("content", "response"),
    [
        ("15", {"output": "15"}),
        ("", {"output": ""}),
        ('{"temp": 1.50}', {"temp": 1.5}),
        ("[1]", {"output": "[1]"}),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], {"output": "ab"}),
    ],
)
def test_a_result_is_an_object(content: Any, response: dict[str, Any]) -> None:
    assistant = {"role": "assistant", "content": None, "tool_calls": [call("a")]}
    found = contents(said("x"), assistant, answer("a", content))
    assert found[2] == {
        "role": "user",
        "parts": [{"functionResponse": {"id": "a", "name": "f", "response": response}}],
    }


def test_results_stand_in_the_order_of_their_calls_and_before_what_the_user_says() -> None:
    calls = [call("a", name="f"), call("b", '{"x": 1.50}', name="g"), call("c", "", name="f")]
    found = contents(
        said("x"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        answer("c", "3"),
        answer("a", "1"),
        answer("b", "2"),
        said("and?"),
    )
    assert [part["functionCall"]["args"] for part in found[1]["parts"]] == [{}, {"x": 1.5}, {}]
    *results, last = found[2]["parts"]
    told = [(part["functionResponse"]["id"], part["functionResponse"]["name"]) for part in results]
    assert told == [("a", "f"), ("b", "g"), ("c", "f")]
    assert last == {"text": "and?"}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([said("x"), {"role": "assistant", "tool_calls": [call("a")]}], "'a' has no result"),
        ([said("x"), {"role": "assistant", "tool_calls": [call("a")]}, said("y")], "'a' has no result"),
        ([said("x"), answer("a", "1")], "'a' answers no call"),
        (
            [said("x"), {"role": "assistant", "tool_calls": [call("a")]}, answer("a", "1"), answer("a", "2")],
            "'a' has two results",
        ),
        ([said("x"), {"role": "assistant", "tool_calls": [call("a", "[1]")]}, answer("a", "1")], "'a' are not a JSON"),
        ([said("x", "system")], "expected a message beside"),
    ],
)
def test_what_the_api_would_refuse_is_refused_with_its_id(messages: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        contents(*messages)


PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}},
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/b.jpg?x=1"}},
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://a.example/b.jpg?x=1"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/b"}},
            {"fileData": {"fileUri": "https://a.example/b"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
        ),
        (
            {"type": "file", "file": {"file_data": "JVBERi0xLjc=", "filename": "a"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0xLjc="}},
        ),
        (
            {"type": "file", "file": {"file_data": "YWJj", "filename": "a.csv"}},
            {"inlineData": {"mimeType": "text/csv", "data": "YWJj"}},
        ),
        (
            {"type": "video_url", "video_url": {"url": "gs://bucket/a.mp4"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}},
        ),
    ],
)
def test_media_go_by_what_they_are(part: dict[str, Any], sent: dict[str, Any]) -> None:
    assert contents({"role": "user", "content": [part]}) == [{"role": "user", "parts": [sent]}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "YWJj"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,abc"}},
        {"type": "something_else", "x": 1},
    ],
)
def test_media_that_gemini_cannot_get_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        contents({"role": "user", "content": [part]})


def test_documents_are_text_and_are_not_cited() -> None:
    exchange = chat()
    document = Document(text="body", title="Title", context="by ann")
    asked = replace(exchange.request, messages=(Message(role=USER, parts=(document,)),))
    sent = json.loads(exchange.upstream.render_request(asked))
    assert sent["contents"][0]["parts"] == [{"text": "Title\nby ann\nbody"}]
    cited = replace(asked, messages=(Message(role=USER, parts=(replace(document, citations=True),)),))
    with pytest.raises(UnsupportedParameter):
        exchange.upstream.render_request(cited)


def history(*parts: Any, model: str = "gemini-3-pro", after: tuple[Message, ...] = ()) -> list[dict[str, Any]]:
    """What is sent of an assistant's turn with these parts, for a client that is not Gemini's."""
    exchange = chat(model=model)
    turns = (Message(role=USER, parts=(Text(text="x"),)), Message(role=ASSISTANT, parts=parts))
    sent = json.loads(exchange.upstream.render_request(replace(exchange.request, messages=(*turns, *after))))
    found: list[dict[str, Any]] = sent["contents"][1]["parts"]
    return found


def results(*ids: str) -> tuple[Message, ...]:
    return tuple([Message(role="tool", parts=(ToolResult(call_id=i, parts=(Text(text="ok"),)),)) for i in ids])


def test_a_signature_goes_back_with_the_call_that_follows_it() -> None:
    parts = history(
        Reasoning(text="hm", signature="S", origin=PROVIDER),
        ToolCall(id="a", name="f"),
        ToolCall(id="b", name="f"),
        after=results("a", "b"),
    )
    assert parts == [
        {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": "S"},
        {"functionCall": {"id": "b", "name": "f", "args": {}}},
    ]


def test_a_signature_behind_text_goes_back_as_a_part_of_its_own() -> None:
    parts = history(Text(text="yes"), Reasoning(signature="S", origin=PROVIDER))
    assert parts == [{"text": "yes"}, {"text": "", "thoughtSignature": "S"}]


@pytest.mark.parametrize("thought", [Reasoning(text="hm", signature="S", origin="claude"), Reasoning(text="hm")])
@pytest.mark.parametrize(("model", "signature"), [("gemini-3-pro", SKIPPED), ("gemini-2.5-pro", None)])
def test_calls_that_another_model_made_get_the_placeholder_where_it_is_demanded(
    thought: Reasoning, model: str, signature: str | None
) -> None:
    first, second = history(
        thought, ToolCall(id="a", name="f"), ToolCall(id="b", name="f"), model=model, after=results("a", "b")
    )
    assert first.get("thoughtSignature") == signature
    assert "thoughtSignature" not in second


def test_calls_of_earlier_turns_need_no_signature() -> None:
    parts = history(
        ToolCall(id="a", name="f"), after=(*results("a"), Message(role=USER, parts=(Text(text="and now?"),)))
    )
    assert parts == [{"functionCall": {"id": "a", "name": "f", "args": {}}}]


def test_each_step_of_the_turn_that_goes_on_is_signed() -> None:
    steps = [
        said("x"),
        {"role": "assistant", "tool_calls": [call("a")]},
        answer("a", "1"),
        {"role": "assistant", "tool_calls": [call("b"), call("c")]},
        answer("b", "2"),
        answer("c", "3"),
    ]
    found = contents(*steps)
    signed = [[("thoughtSignature" in part) for part in turn["parts"]] for turn in (found[1], found[3])]
    assert signed == [[True], [True, False]]


def test_a_chat_client_may_give_a_signature_back_where_googles_own_surface_has_it() -> None:
    signed = {**call("a"), "extra_content": {"google": {"thought_signature": "S"}}}
    found = contents(said("x"), {"role": "assistant", "tool_calls": [signed]}, answer("a", "1"))
    assert found[1]["parts"][0]["thoughtSignature"] == "S"


def test_parts_of_other_dialects_are_refused() -> None:
    with pytest.raises(UnsupportedParameter):
        history(Opaque(type="x", raw=b"{}", origin="anthropic.messages"))


NATIVE: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "Let me look.", "thoughtSignature": "VFhU"},
            {"functionCall": {"id": "c1", "name": "f", "args": {"x": 1.5}}, "thoughtSignature": "U0lH"},
            {"functionCall": {"name": "f"}},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "Q09E"},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "1"}, "scheduling": "SILENT"}},
            {
                "functionResponse": {
                    "name": "f",
                    "response": {"later": [1.5], "output": "2"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
                }
            },
            {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}, "videoMetadata": {"fps": 2}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://a/b"}, "mediaResolution": {"level": "LOW"}},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True, "thoughtSignature": "VEhP"},
            {"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "SU1H"},
            {"text": "done"},
            {"text": "", "thoughtSignature": "RU5E"},
        ],
    },
    {"role": "user", "parts": [{"text": "thanks"}]},
]


def test_a_conversation_of_geminis_own_clients_passes_as_it_came() -> None:
    exchange = generate(contents=NATIVE)
    expected = json.loads(json.dumps(NATIVE))
    expected[1]["parts"][3]["functionCall"]["args"] = {}
    assert exchange.sent()["contents"] == expected
    assert exchange.upstream.render_request(exchange.request) == exchange.upstream.render_request(exchange.request)


def test_calls_and_results_without_ids_belong_together_for_other_targets() -> None:
    request = generate(contents=NATIVE).request
    assert request.messages is not None
    calls = [part for part in request.messages[1].parts if isinstance(part, ToolCall)]
    answered = [part.call_id for message in request.messages[2:4] for part in message.parts]  # type: ignore[union-attr]
    assert [part.id for part in calls] == answered == ["c1", "gwcall_1_3"]


def test_signatures_of_another_provider_come_back_to_it_through_geminis_clients() -> None:
    """Claude's thoughts, told to a Gemini client that gives them back."""
    thoughts = (
        Reasoning(text="hm", signature="SIG", origin="claude"),
        Reasoning(encrypted="SEALED", origin="claude"),
        ToolCall(id="a", name="f", arguments="{}"),
    )
    events: list[Event] = [
        ReasoningDelta(0, 0, "hm"),
        ReasoningFinished(0, 0, "SIG", None, "claude"),
        ReasoningFinished(0, 1, None, "SEALED", "claude"),
        ToolCallStarted(0, 2, "a", "f"),
        ToolArgumentsDelta(0, 2, "{}"),
        ToolCallFinished(0, 2),
        ChoiceFinished(0, StopReason.TOOL_CALLS, "tool_use"),
    ]
    exchange = generate()
    streamed = parts_of(exchange.stream(events))
    whole = json.loads(exchange.answer(events))["candidates"][0]["content"]["parts"]
    assert streamed == whole
    assert [base64.b64decode(part["thoughtSignature"], validate=True)[:3] for part in whole[:2]] == [b"gwo", b"gwo"]
    result = {"functionResponse": {"id": "a", "name": "f", "response": {"output": "ok"}}}
    back = generate(
        contents=[
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": whole},
            {"role": "user", "parts": [result]},
        ]
    )
    assert back.request.messages is not None
    parts = back.request.messages[1].parts
    assert tuple(replace(part, provider_data=None) for part in parts) == thoughts
    assert back.sent()["contents"][1]["parts"] == [
        {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": SKIPPED}
    ]


@pytest.mark.parametrize(
    ("signature", "sent"),
    [
        (marked("S", PROVIDER), [{"text": "yes"}, {"text": "", "thoughtSignature": "S"}]),
        (marked("S", "claude"), [{"text": "yes"}]),
        ("S", [{"text": "yes", "thoughtSignature": "S"}]),
    ],
)
def test_a_signature_that_a_client_keeps_with_the_text_before_it_reaches_its_maker(
    signature: str, sent: list[dict[str, Any]]
) -> None:
    """pydantic-ai and the AI SDK make one part of a text and of the signature that came behind it."""
    said_before = {"role": "model", "parts": [{"text": "yes", "thoughtSignature": signature}]}
    turns = [{"role": "user", "parts": [{"text": "x"}]}, said_before, {"role": "user", "parts": [{"text": "y"}]}]
    assert generate(contents=turns).sent()["contents"][1]["parts"] == sent


def test_messages_are_named_by_their_place_in_the_body() -> None:
    hi: dict[str, Any] = {"role": "user", "parts": [{"text": "hi"}]}
    called = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    answered = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}, {"text": "b"}]}
    request = generate(contents=[hi, called, answered], systemInstruction={"parts": [{"text": "c"}]}).request
    assert [message.role for message in request.messages or ()] == ["system", "user", "assistant", "tool", "user"]
    in_order = ("contents[0]", "contents[1]", "contents[2]", "contents[2]")
    assert request.message_paths == ("systemInstruction", *in_order)
