"""Two gateways that count in one Redis."""

from redis.asyncio import Redis

from providers.testing.scripted import ScriptedProvider
from tests.gateway.limits.redis_server import REDIS_URL, needs_redis
from tests.gateway.server.running import HELLO, running
from tests.gateway.server.test_limits import ask, limited


@needs_redis
async def test_a_limit_holds_for_all_gateways_together() -> None:
    redis = Redis.from_url(REDIS_URL)
    await redis.flushdb()
    await redis.aclose()
    extra = limited("limits: {rpm: 3, tpm: 1000}", f"shared: {{url: '{REDIS_URL}'}}\n")
    async with (
        running(ScriptedProvider("fake", HELLO), extra=extra) as one,
        running(ScriptedProvider("fake", HELLO), extra=extra) as other,
    ):
        answers = [await ask(gateway, max_tokens=10) for gateway in (one, other, other, one)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]


async def test_a_gateway_serves_while_its_redis_is_away() -> None:
    extra = limited("limits: {rpm: 1}", "shared: {url: 'redis://127.0.0.1:1/0'}\n")
    async with running(ScriptedProvider("fake", HELLO), extra=extra) as gateway:
        assert [(await ask(gateway)).status for _ in range(2)] == [200, 429]
        assert [line["event"] for line in gateway.lines()].count("shared_limits_lost") == 1
