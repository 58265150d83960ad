"""What browsers are told: which pages may call, and how answers are to be taken."""

import pytest

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, chat, running

APP = "https://app.example.com"
ALLOWED = f"server: {{cors: ['{APP}']}}\n"
ANY = "server: {cors: ['*']}\n"
KEYS = "auth: {keys: [{id: team-a, secret: secret-of-team-a}]}\n"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}


def fake() -> ScriptedProvider:
    return ScriptedProvider("fake", HELLO)


async def test_a_preflight_of_an_allowed_page_needs_no_key() -> None:
    async with running(fake(), extra=ALLOWED + KEYS) as gateway:
        url = gateway.url + "/v1/chat/completions"
        async with gateway.session.options(url, headers={"Origin": APP, **PREFLIGHT}) as answer:
            assert answer.status == 204
            assert answer.headers["access-control-allow-origin"] == APP
            assert answer.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert {"GET", "POST", "PATCH", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
            assert "access-control-allow-credentials" not in answer.headers


async def test_an_allowed_page_reads_its_answer_also_an_error_and_a_stream() -> None:
    async with running(fake(), extra=ALLOWED + KEYS) as gateway:
        key = {"Authorization": "Bearer secret-of-team-a"}
        for body, headers, status in (
            (chat(), key, 200),
            (chat(stream=True), key, 200),
            (chat(), {}, 401),
            (chat("no-such"), key, 404),
        ):
            async with gateway.post(body, headers={"Origin": APP, **headers}) as answer:
                assert answer.status == status
                assert answer.headers["access-control-allow-origin"] == APP
                assert "x-request-id" in answer.headers["access-control-expose-headers"]
                assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example.com", "http://app.example.com", f"{APP}.evil.com", "null"])
async def test_another_page_gets_no_leave_to_read(origin: str) -> None:
    async with running(fake(), extra=ALLOWED + KEYS) as gateway:
        url = gateway.url + "/v1/chat/completions"
        async with gateway.session.options(url, headers={"Origin": origin, **PREFLIGHT}) as answer:
            assert answer.status == 403
        async with gateway.post(chat(), headers={"Origin": origin}) as answer:
            assert "access-control-allow-origin" not in answer.headers


async def test_without_keys_an_allowed_page_is_let_in_and_no_other() -> None:
    async with running(fake(), extra=ALLOWED) as gateway:
        async with gateway.post(chat(), headers={"Origin": APP}) as answer:
            assert answer.status == 200
        async with gateway.post(chat(), headers={"Origin": "https://evil.example.com"}) as answer:
            assert answer.status == 403


async def test_a_star_lets_every_page_in() -> None:
    async with running(fake(), extra=ANY) as gateway, gateway.post(chat(), headers={"Origin": APP}) as answer:
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "*"


async def test_by_default_no_page_is_told_anything() -> None:
    async with running(fake()) as gateway:
        async with gateway.post(chat()) as answer:
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["x-content-type-options"] == "nosniff"
        async with gateway.session.options(gateway.url + "/v1/models", headers={"Origin": APP, **PREFLIGHT}) as answer:
            assert answer.status == 403
