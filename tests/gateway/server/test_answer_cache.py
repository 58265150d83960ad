"""The exact cache over real sockets: who asks the same gets the same, and nobody gets another tenant's answer."""

import orjson
import pytest

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import ChoiceFinished
from adapters.canonical.stop_reason import StopReason
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, running, text

CACHE = "cache: {exact: {ttl_s: 60, max_mb: 1}}\n"
KEYS = "auth: {keys: [{id: a, secret: secret-a}, {id: b, secret: secret-b}]}\n"


def fake() -> ScriptedProvider:
    return ScriptedProvider("fake", HELLO, [text("another"), [ChoiceFinished(0, StopReason.STOP)]])


async def said(gateway: Running, body: dict[str, object], **headers: str) -> tuple[str, str | None]:
    """The text of an answer, and what the cache said."""
    async with gateway.post(body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        told = answer.headers.get("x-gateway-cache")
        if not body.get("stream"):
            return (await answer.json())["choices"][0]["message"]["content"], told
        content = ""
        for line in (await answer.text()).splitlines():
            if line.startswith("data: {"):
                content += orjson.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        return content, told


async def test_the_same_request_is_answered_again_without_asking() -> None:
    provider = fake()
    async with running(provider, extra=CACHE) as gateway:
        assert await said(gateway, chat()) == ("Hello there", "miss")
        assert await said(gateway, chat()) == ("Hello there", "hit")
    assert len(provider.requests) == 1


async def test_a_stream_is_answered_as_a_stream_whoever_asked_first() -> None:
    provider = fake()
    async with running(provider, extra=CACHE) as gateway:
        assert await said(gateway, chat(stream=True)) == ("Hello there", "miss")
        assert await said(gateway, chat()) == ("Hello there", "hit")
        assert await said(gateway, chat(stream=True)) == ("Hello there", "hit")
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.5},
        {"max_tokens": 7},
        {"messages": [{"role": "user", "content": "hi "}]},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": ""}]}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"seed": 1},
        {"user": "someone"},
        {"model": "fake/other"},
    ],
)
async def test_what_changes_an_answer_is_another_request(other: dict[str, object]) -> None:
    async with running(fake(), extra=CACHE) as gateway:
        await said(gateway, chat())
        assert await said(gateway, {**chat(), **other}) == ("another", "miss")


async def test_another_key_never_gets_the_answer() -> None:
    async with running(fake(), extra=CACHE + KEYS) as gateway:
        assert await said(gateway, chat(), Authorization="Bearer secret-a") == ("Hello there", "miss")
        assert await said(gateway, chat(), Authorization="Bearer secret-b") == ("another", "miss")
        assert await said(gateway, chat(), Authorization="Bearer secret-a") == ("Hello there", "hit")


async def test_headers_that_steer_a_request_are_part_of_what_it_is() -> None:
    models = "models: {smart: {targets: [{use: other/m, when: {header: {X-Team: lab-*}}}, fake/m]}}\n"
    other = ScriptedProvider("other", [text("from the lab"), [ChoiceFinished(0, StopReason.STOP)]])
    async with running(fake(), other, extra=CACHE + models) as gateway:
        assert await said(gateway, chat("smart")) == ("Hello there", "miss")
        assert await said(gateway, chat("smart"), **{"x-team": "lab-1"}) == ("from the lab", "miss")
        assert await said(gateway, chat("smart"), **{"x-other": "1"}) == ("Hello there", "hit")


async def test_an_answer_for_which_something_was_left_out_is_kept_and_says_so_again() -> None:
    provider = ScriptedProvider("fake", HELLO, capabilities=Capabilities(fields=frozenset()))
    extra = CACHE + "server: {unsupported_params: drop}\n"
    async with running(provider, extra=extra) as gateway:
        for told in ("miss", "hit", "hit"):
            for_it = chat(user="someone", temperature=0.5, stream=told == "hit")
            async with gateway.post(for_it) as answer:
                await answer.read()
                assert answer.headers["x-gateway-cache"] == told
                assert set(answer.headers["x-gateway-dropped-params"].split(", ")) == {"user", "temperature"}
        async with gateway.post(chat()) as answer:
            assert answer.headers["x-gateway-cache"] == "miss"
            assert "x-gateway-dropped-params" not in answer.headers
    assert len(provider.requests) == 2


async def test_a_failure_is_not_kept() -> None:
    provider = ScriptedProvider("fake", [UpstreamInternal("no")], HELLO)
    extra = CACHE + "reliability: {retry: {attempts: 1}}\n"
    async with running(provider, extra=extra) as gateway:
        async with gateway.post(chat()) as answer:
            assert answer.status == 500
        assert await said(gateway, chat()) == ("Hello there", "miss")


async def test_an_answer_that_breaks_off_is_not_kept() -> None:
    provider = ScriptedProvider("fake", [text("Hel"), UpstreamInternal("no")], HELLO)
    async with running(provider, extra=CACHE) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            assert "error" in await answer.text()
        assert await said(gateway, chat(stream=True)) == ("Hello there", "miss")


async def test_a_client_may_stay_out_of_it_or_ask_for_a_fresh_answer() -> None:
    async with running(fake(), extra=CACHE) as gateway:
        await said(gateway, chat())
        assert await said(gateway, chat(), **{"Cache-Control": "no-store"}) == ("another", None)
        assert await said(gateway, chat()) == ("Hello there", "hit")
        assert await said(gateway, chat(), **{"Cache-Control": "no-cache"}) == ("another", "miss")
        assert await said(gateway, chat()) == ("another", "hit")


async def test_without_the_section_nothing_is_kept() -> None:
    async with running(fake()) as gateway:
        assert await said(gateway, chat()) == ("Hello there", None)
        assert await said(gateway, chat()) == ("another", None)
