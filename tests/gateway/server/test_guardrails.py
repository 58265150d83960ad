"""Guardrails over real sockets: texts are changed or refused on their way in and out, in bodies and in streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web

from adapters.canonical.events import (
    ChoiceFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Text
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, Running, chat, error_of, running, text
from tests.mock_upstream import Answer, MockUpstream

CARD = "4111111111111111"
REDACTED = "guardrails: [{regex: '\\d{16}', replace: '[card]', max_length: 16}]\n"
REFUSED = "guardrails: [{regex: 'forbidden', on: [output]}]\n"


def letters(value: str) -> list[Batch]:
    return [[Started()], *[text(letter) for letter in value], FINISH]


async def streamed(gateway: Running) -> tuple[str, str | None]:
    """The text of a streamed answer, and why it ended."""
    said, reason = "", None
    async with gateway.post(chat(stream=True)) as answer:
        assert answer.status == 200, await answer.text()
        for line in (await answer.text()).splitlines():
            if line.startswith("data: {"):
                for choice in orjson.loads(line[6:])["choices"]:
                    said += choice["delta"].get("content") or ""
                    reason = choice["finish_reason"] or reason
    return said, reason


async def test_what_goes_in_is_redacted() -> None:
    provider = ScriptedProvider("fake", letters("ok"))
    async with running(provider, extra=REDACTED) as gateway:
        body = chat(messages=[{"role": "user", "content": f"my card is {CARD}!"}])
        async with gateway.post(body) as answer:
            assert answer.status == 200
    messages = provider.requests[0].messages
    assert messages is not None
    assert messages[0].parts == (Text(text="my card is [card]!"),)


@pytest.mark.parametrize("value", [f"it is {CARD}.", CARD, f"{CARD[:15]} {CARD}"])
async def test_what_comes_out_is_redacted_letter_by_letter_as_in_one_piece(value: str) -> None:
    expected = value.replace(CARD, "[card]")
    async with running(ScriptedProvider("fake", letters(value)), extra=REDACTED) as gateway:
        assert await streamed(gateway) == (expected, "stop")
        async with gateway.post(chat()) as answer:
            assert (await answer.json())["choices"][0]["message"]["content"] == expected


async def test_a_refused_answer_that_has_begun_ends_as_filtered() -> None:
    script = letters("this is long enough to have begun, and then comes the forbidden word, and more")
    async with running(ScriptedProvider("fake", script), extra=REFUSED) as gateway:
        said, reason = await streamed(gateway)
        assert reason == "content_filter"
        assert "begun" not in said[-5:]
        assert "forbidden" not in said


async def test_a_refused_answer_that_has_not_begun_is_an_error() -> None:
    async with (
        running(ScriptedProvider("fake", letters("forbidden")), extra=REFUSED) as gateway,
        gateway.post(chat(stream=True)) as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["code"] == "guardrail"


async def test_arguments_of_tool_calls_are_filtered_before_the_call_ends() -> None:
    script: list[Batch] = [
        [TextDelta(0, 0, "calling")],
        [ToolCallStarted(0, 1, "c1", "pay")],
        [ToolArgumentsDelta(0, 1, '{"card": "41111')],
        [ToolArgumentsDelta(0, 1, '11111111111"}')],
        [ToolCallFinished(0, 1), ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(Usage(prompt_tokens=1))],
    ]
    tools = [{"type": "function", "function": {"name": "pay"}}]
    async with (
        running(ScriptedProvider("fake", script), extra=REDACTED) as gateway,
        gateway.post(chat(tools=tools)) as answer,
    ):
        message = (await answer.json())["choices"][0]["message"]
    assert message["content"] == "calling"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"card": "[card]"}'


async def test_logprobs_are_refused_since_they_would_tell() -> None:
    async with (
        running(ScriptedProvider("fake", letters("ok")), extra=REDACTED) as gateway,
        gateway.post(chat(logprobs=True)) as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["param"] == "logprobs"


@asynccontextmanager
async def judging(judge: Callable[[dict[str, object]], object]) -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """A webhook: what it answers is given for each question. Gives its address and the questions."""
    asked: list[dict[str, object]] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        question = orjson.loads(await request.read())
        asked.append(question)
        found = judge(question)
        return found if isinstance(found, web.StreamResponse) else web.json_response(found)

    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = serve
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/check", asked
    finally:
        await runner.cleanup()


def hook(url: str, on: str) -> str:
    return f"guardrails: [{{webhook: '{url}', on: [{on}]}}]\n"


async def test_a_webhook_sees_the_texts_and_may_replace_them() -> None:
    provider = ScriptedProvider("fake", letters("ok"))

    def judge(question: dict[str, object]) -> object:
        return {"action": "replace", "texts": ["bye"]}

    async with (
        judging(judge) as (url, asked),
        running(provider, extra=hook(url, "input")) as gateway,
        gateway.post(chat()) as answer,
    ):
        assert answer.status == 200
    assert asked[0] | {"request_id": ""} == {
        "direction": "input", "model": "fake/m", "request_id": "", "key": None, "texts": ["hi"],
    }  # fmt: skip
    messages = provider.requests[0].messages
    assert messages is not None
    assert messages[0].parts == (Text(text="bye"),)


async def test_a_webhook_is_shown_its_key() -> None:
    async with MockUpstream(Answer.json(b'{"action": "allow"}')) as webhook:
        url, headers = webhook.base_url, "headers: {Authorization: Bearer of-ours}"
        extra = f"guardrails: [{{webhook: '{url}', {headers}, on: [input]}}]\n"
        async with (
            running(ScriptedProvider("fake", letters("ok")), extra=extra) as gateway,
            gateway.post(chat()) as answer,
        ):
            assert answer.status == 200
    assert webhook.requests[0].headers["authorization"] == "Bearer of-ours"


async def test_a_webhook_may_refuse() -> None:
    provider = ScriptedProvider("fake", letters("ok"))
    async with (
        judging(lambda _: {"action": "refuse", "message": "not that"}) as (url, _),
        running(provider, extra=hook(url, "input")) as gateway,
        gateway.post(chat()) as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["message"] == "not that"
    assert provider.requests == []


async def test_a_webhook_sees_a_stream_in_equal_pieces_whatever_its_cuts() -> None:
    value = "abcdefghij" * 100
    async with (
        judging(lambda _: {"action": "allow"}) as (url, asked),
        running(ScriptedProvider("fake", letters(value)), extra=hook(url, "output")) as gateway,
    ):
        assert (await streamed(gateway))[0] == value
    assert [len(str(question["texts"])) - 4 for question in asked] == [400, 400, 200]


@pytest.mark.parametrize(
    "broken",
    [{"action": "perhaps"}, web.Response(status=500), web.Response(text="<html>"), {"action": "replace", "texts": []}],
)
async def test_a_webhook_that_breaks_refuses(broken: object) -> None:
    provider = ScriptedProvider("fake", letters("ok"))
    async with (
        judging(lambda _: broken) as (url, _),
        running(provider, extra=hook(url, "input")) as gateway,
        gateway.post(chat()) as answer,
    ):
        assert answer.status == 503
        assert (await error_of(answer))["code"] == "guardrail_unavailable"
    assert provider.requests == []
