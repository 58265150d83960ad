"""`truncation: auto`: which turns go, and that the same target is asked again until the prompt fits."""

from collections.abc import Iterable

import pytest

from adapters.canonical.errors import ContextOverflow
from adapters.canonical.messages import Message, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from gateway.routing.truncation import shortened
from providers.testing.scripted import ScriptedProvider, Step
from tests.gateway.server.running import HELLO, error_of, running


def said(role: str, text: str = "x") -> Message:
    return Message(role=role, parts=(Text(text=text),))


CALL = Message(role="assistant", parts=(ToolCall(id="c", name="f"),))
RESULT = Message(role="tool", parts=(ToolResult(call_id="c"),))


def request(*messages: Message, truncation: str | None = "auto") -> Request:
    paths = tuple([f"input[{i}]" for i in range(len(messages))])
    return Request(model="m", dialect="openai.responses", messages=messages, message_paths=paths, truncation=truncation)


def left(*messages: Message) -> list[int] | None:
    """The places of the messages that stay; None: nothing may go."""
    found = shortened(request(*messages))
    if found is None:
        return None
    assert found.messages == tuple([messages[int(path[6:-1])] for path in found.message_paths or ()])
    return [int(path[6:-1]) for path in found.message_paths or ()]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([said("user")], None),
        ([said("system"), said("user"), said("assistant")], None),
        ([said("user"), said("assistant"), said("user")], [2]),
        ([said("system"), said("user"), said("assistant"), said("user")], [0, 3]),
        ([said("user"), CALL, RESULT, said("assistant"), said("user")], [4]),
        ([said("user"), said("developer"), said("user"), CALL, RESULT], [1, 2, 3, 4]),
        ([said("assistant"), said("user"), said("assistant")], [1, 2]),
        ([said("user"), said("user"), said("user"), said("user")], [2, 3]),
        ([said("user"), said("user"), said("user")], [1, 2]),
        ([said("system")], None),
    ],
)
def test_the_older_half_of_the_turns_goes(messages: list[Message], expected: list[int] | None) -> None:
    assert left(*messages) == expected


@pytest.mark.parametrize("truncation", [None, "disabled"])
def test_nothing_goes_where_nobody_said_so(truncation: str | None) -> None:
    assert shortened(request(said("user"), said("user"), truncation=truncation)) is None


def fits(limit: int) -> ScriptedProvider:
    def script(asked: Request) -> Iterable[Step]:
        if len(asked.messages or ()) > limit:
            return [ContextOverflow("the prompt is too long")]
        return HELLO

    return ScriptedProvider("fake", script)


async def test_a_conversation_that_does_not_fit_is_shortened_until_it_does() -> None:
    provider = fits(3)
    items = [{"role": "user", "content": str(i)} for i in range(9)]
    body = {"model": "fake/m", "input": items, "instructions": "be", "truncation": "auto"}
    async with running(provider) as gateway, gateway.post(body, "/v1/responses") as answer:
        assert answer.status == 200
        assert (await answer.json())["truncation"] == "auto"
    assert [len(asked.messages or ()) for asked in provider.requests] == [10, 6, 4, 3]
    assert [message.parts[0] for message in provider.requests[-1].messages or ()] == [
        Text(text="be"),
        Text(text="7"),
        Text(text="8"),
    ]


@pytest.mark.parametrize("truncation", ["auto", "disabled", None])
async def test_what_cannot_be_shortened_is_refused(truncation: str | None) -> None:
    body = {"model": "fake/m", "input": "long", "truncation": truncation}
    async with running(fits(0)) as gateway, gateway.post(body, "/v1/responses") as answer:
        assert answer.status == 400
        assert (await error_of(answer))["code"] == "context_length_exceeded"
