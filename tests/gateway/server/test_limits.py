"""What clients see of limits, budgets and costs, and that everything reserved is settled on every way out."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import orjson
import pytest

from adapters.canonical.errors import InvalidRequest, UpstreamOverloaded, UpstreamUnreachable
from adapters.canonical.events import Event, TextDelta, UsageReported
from adapters.canonical.usage import Usage
from gateway.config import parse_config
from gateway.limits.in_process import InProcessLimiter
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, HELLO, Running, chat, error_of, running, text, until

BEARER = {"Authorization": "Bearer secret-of-team-a"}
SPENT = UsageReported(Usage(prompt_tokens=1000, completion_tokens=100, cached_tokens=400, cache_write_tokens=200))
PRICED = [[TextDelta(0, 0, "Hello"), *FINISH, SPENT]]


def limited(rules: str, more: str = "") -> str:
    key = f"{{id: team-a, secret: secret-of-team-a, admin: true, {rules}}}"
    return f"auth:\n  keys:\n    - {key}\nstorage: {{url: memory}}\n{more}"


def prices(folder: Path, rows: str = "fake/m: {input: 2, output: 10, cached: 0.5, cache_write: 3}") -> str:
    path = folder / "prices.yaml"
    path.write_text(rows)
    return f"prices: {{file: {path}}}\n"


def serving(*scripts: object, extra: str, **options: object) -> AbstractAsyncContextManager[Running]:
    return running(ScriptedProvider("fake", *(scripts or (HELLO,)), **options), extra=extra)  # type: ignore[arg-type]


def in_use(gateway: Running) -> int:
    """Requests of the key that hold a place."""
    accounts = gateway.app.service._accounts
    assert accounts is not None
    assert isinstance(accounts.limiter, InProcessLimiter)
    return accounts.limiter.running("key:team-a")


async def ask(gateway: Running, **fields: object) -> aiohttp.ClientResponse:
    async with gateway.post(chat(**fields), headers=BEARER) as answer:  # type: ignore[arg-type]
        await answer.read()
    return answer


async def test_good_answers_tell_what_is_left_of_the_minute() -> None:
    async with serving(extra=limited("limits: {rpm: 10, tpm: 5000}")) as gateway:
        for left in ("9", "8"):
            answer = await ask(gateway, max_tokens=100)
            assert answer.status == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "10"
            assert answer.headers["x-ratelimit-remaining-requests"] == left
            assert answer.headers["x-ratelimit-limit-tokens"] == "5000"
        # The first one used 5 tokens of the 106 that were taken for it.
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) == 5000 - 5 - 105


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_asks_is_told_what_its_request_cost(tmp_path: Path, stream: bool) -> None:
    async with serving(PRICED, extra=limited("limits: {rpm: 10}", prices(tmp_path))) as gateway:
        headers = {**BEARER, "x-gateway-metrics": "true"}
        async with gateway.post(chat(stream=stream), headers=headers) as answer:
            body = await answer.text()
            comment = next((line for line in body.splitlines() if line.startswith(": x-gateway-metrics ")), "")
            told = comment if stream else answer.headers["x-gateway-metrics"]
    assert told.endswith(f"cost_usd={(400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6:g}"), told


@pytest.mark.parametrize("stream", [False, True])
async def test_the_request_after_the_last_one_is_a_429_that_says_when(stream: bool) -> None:
    async with serving(extra=limited("limits: {rpm: 1}")) as gateway:
        assert (await ask(gateway, stream=stream)).status == 200
        async with gateway.post(chat(stream=stream), headers=BEARER) as answer:
            assert answer.status == 429
            error = await error_of(answer)
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert 50 <= int(answer.headers["retry-after"]) <= 61
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_429_is_in_the_clients_dialect() -> None:
    body = {"model": "fake/m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-api-key": "secret-of-team-a", "anthropic-version": "2023-06-01"}
    async with serving(extra=limited("limits: {rpm: 1}")) as gateway:
        for status in (200, 429):
            async with gateway.post(body, "/v1/messages", headers=headers) as answer:
                assert answer.status == status
                found = orjson.loads(await answer.read())
        assert found["type"] == "error"
        assert found["error"]["type"] == "rate_limit_error"


async def test_requests_side_by_side_are_bounded_and_their_places_come_back() -> None:
    gate = asyncio.Event()
    async with serving([gate, *HELLO], HELLO, extra=limited("limits: {parallel: 1}")) as gateway:
        first = asyncio.create_task(ask(gateway))
        await until(lambda: in_use(gateway) == 1)
        second = await ask(gateway)
        assert (second.status, second.headers["retry-after"]) == (429, "1")
        gate.set()
        assert (await first).status == 200
        assert in_use(gateway) == 0
        assert (await ask(gateway)).status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        HELLO,
        [UpstreamUnreachable("no")],
        [InvalidRequest("no")],
        [text("half"), UpstreamOverloaded("no")],
        [text("never finished")],
        [RuntimeError("a fault of ours")],
    ],
    ids=["good", "refused", "invalid", "broken", "truncated", "fault"],
)
async def test_what_was_reserved_is_settled_however_the_request_ends(script: list[object], stream: bool) -> None:
    async with serving(script, extra=limited("limits: {parallel: 3, tpm: 10000}")) as gateway:
        answer = await ask(gateway, stream=stream)
        assert in_use(gateway) == 0
        left = int(answer.headers["x-ratelimit-remaining-tokens"])
        again = int((await ask(gateway, stream=stream)).headers["x-ratelimit-remaining-tokens"])
        assert left - again < 20  # what was not used came back


@pytest.mark.parametrize(
    "told", [[], [UsageReported(Usage(prompt_tokens=5, completion_tokens=0))]], ids=["none", "early"]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_gives_its_place_back_and_pays_for_what_was_written(
    stream: bool, told: list[Event]
) -> None:
    gate = asyncio.Event()
    script = [told, text("a" * 400), gate, *HELLO[1:]]
    async with serving(script, HELLO, extra=limited("limits: {parallel: 1, tpm: 10000}")) as gateway:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(gateway, stream=stream)
        await until(lambda: in_use(gateway) == 0)
        answer = await ask(gateway, max_tokens=10)
        used = 10_000 - int(answer.headers["x-ratelimit-remaining-tokens"]) - 15
        assert used == 105  # 400 characters and the prompt, by the estimate


async def test_a_budget_is_spent_by_what_answers_cost(tmp_path: Path) -> None:
    # 400 plain, 400 cached and 200 written tokens of the prompt, and 100 of the answer.
    cost = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6
    extra = limited(f"budget: {{usd: {cost * 2}, per: month}}", prices(tmp_path))
    async with serving(PRICED, extra=extra) as gateway:
        assert (await ask(gateway, max_tokens=1)).status == 200
        assert gateway.lines()[-1]["cost_usd"] == pytest.approx(cost)
        assert (await ask(gateway, max_tokens=1)).status == 200
        async with gateway.post(chat(max_tokens=1), headers=BEARER) as answer:
            assert answer.status == 429
            error = await error_of(answer)
        assert (error["code"], error["type"]) == ("insufficient_quota", "insufficient_quota")
        assert str(error["message"]).startswith("this key has spent its budget of this month, or has too little of it")
        assert answer.headers["x-should-retry"] == "false"
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(("given", "taken"), [("max_tokens: 10", 10), ("defaults: {max_tokens: 20}", 20)])
async def test_what_a_name_says_of_its_answers_is_what_is_reserved(given: str, taken: int) -> None:
    models = f"models: {{small: {{targets: [fake/m], {given}}}}}\n"
    async with serving(HELLO, extra=limited("limits: {tpm: 1000}", models)) as gateway:
        answer = await ask(gateway, model="small")
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) == 1000 - 5 - taken


async def test_a_budget_is_reserved_by_the_tier_that_is_asked_for_and_spent_by_that_of_the_answer(
    tmp_path: Path,
) -> None:
    rows = prices(tmp_path, "fake/m: {input: 10, output: 100, tiers: {priority: 3, flex: 0.5}}")
    used = UsageReported(Usage(prompt_tokens=100, completion_tokens=10, tier="flex"))
    extra = limited("budget: {usd: 0.002, per: month}", rows)
    takes = Capabilities(fields=frozenset(("max_tokens", "service_tier")))
    async with serving([[TextDelta(0, 0, "Hello"), *FINISH, used]], extra=extra, capabilities=takes) as gateway:
        assert (await ask(gateway, max_tokens=10, service_tier="priority")).status == 429
        assert (await ask(gateway, max_tokens=10, service_tier="flex")).status == 200
        assert gateway.lines()[-1]["cost_usd"] == pytest.approx(0.001)


async def test_a_budget_for_ever_that_is_spent_says_no_time_to_come_again(tmp_path: Path) -> None:
    async with serving(PRICED, extra=limited("budget: {usd: 0.002, per: ever}", prices(tmp_path))) as gateway:
        assert (await ask(gateway, max_tokens=1)).status == 200
        answer = await ask(gateway, max_tokens=1)
        assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
        assert "retry-after" not in answer.headers


async def test_a_budget_outlives_the_process(tmp_path: Path) -> None:
    rules = limited("budget: {usd: 0.0051, per: day}", prices(tmp_path))
    extra = rules.replace("url: memory", f"url: 'sqlite:///{tmp_path}/gateway.db'")
    statuses = []
    for _ in range(3):
        async with serving(PRICED, extra=extra) as gateway:
            statuses.append((await ask(gateway, max_tokens=1)).status)
    assert statuses == [200, 200, 429]


async def test_a_name_has_limits_for_all_clients_together() -> None:
    more = "    - {id: team-b, secret: secret-of-team-b}\n"
    models = "models: {fast: {targets: [fake/m], limits: {rpm: 1}}}\n"
    async with serving(extra=limited("models: ['*']").replace("storage", f"{more}storage") + models) as gateway:
        assert (await ask(gateway, model="fast")).status == 200
        headers = {"Authorization": "Bearer secret-of-team-b"}
        async with gateway.post(chat("fast"), headers=headers) as answer:
            assert answer.status == 429
            assert "the model 'fast'" in str((await error_of(answer))["message"])
        assert (await ask(gateway, model="fake/m")).status == 200


async def test_names_behind_one_star_share_its_limits_and_its_budget_outlives_the_process(tmp_path: Path) -> None:
    cost = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6
    budget = f"budget: {{usd: {cost * 3}, per: month}}"
    models = f"models: {{'my-*': {{targets: ['fake/*'], {budget}}}, my-own: fake/m, '*': fake/m}}\n"
    rows = prices(tmp_path, "'fake/*': {input: 2, output: 10, cached: 0.5, cache_write: 3}")
    extra = limited("models: ['my-*', other]", models + rows)
    extra = extra.replace("url: memory", f"url: 'sqlite:///{tmp_path}/gateway.db'")
    told = []
    for names in (["my-a", "my-own", "other"], ["my-b", "my-own"], ["my-a", "my-c", "my-own", "other", "another"]):
        async with serving(*[PRICED] * 5, extra=extra) as gateway:
            told.append([(await ask(gateway, model=name, max_tokens=1)).status for name in names])
    assert told == [[200, 200, 200], [200, 200], [200, 429, 200, 200, 403]]


async def test_a_key_has_limits_for_single_models() -> None:
    async with serving(extra=limited('per_model: {"fake/big*": {limits: {rpm: 1}}}')) as gateway:
        assert (await ask(gateway, model="fake/big-1")).status == 200
        assert (await ask(gateway, model="fake/big-2")).status == 429
        assert (await ask(gateway, model="fake/small")).status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("told", [[], [UsageReported(Usage())]], ids=["no usage", "nulls"])
async def test_an_upstream_that_does_not_say_what_it_used_is_estimated_and_marked(
    stream: bool, told: list[Event]
) -> None:
    script = [[TextDelta(0, 0, "x" * 40)], [*FINISH, *told]]
    fields = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    async with serving(script, extra=limited("limits: {tpm: 1000}")) as gateway:
        async with gateway.post(chat("fake/m", **fields), headers=BEARER) as answer:
            data = await answer.read()
        if stream:
            frames = [orjson.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
            usage = next(frame["usage"] for frame in frames if frame.get("usage"))
        else:
            usage = orjson.loads(data)["usage"]
        assert usage["completion_tokens"] == 10
        assert usage["prompt_tokens"] > 0
        assert usage["estimated"] is True


async def test_a_gateway_without_keys_limits_and_prices_counts_nothing() -> None:
    async with serving(extra="") as gateway:
        assert gateway.app.service._accounts is None
        async with gateway.post(chat()) as answer:
            assert "x-ratelimit-limit-requests" not in answer.headers


async def test_a_response_in_the_background_holds_its_place_until_it_is_made() -> None:
    gate = asyncio.Event()
    body = {"model": "fake/m", "input": "hi", "background": True, "max_output_tokens": 10}
    async with serving([gate, *HELLO], extra=limited("limits: {parallel: 1, tpm: 1000}")) as gateway:
        async with gateway.post(body, "/v1/responses", headers=BEARER) as answer:
            assert answer.status == 200
            await answer.read()
        assert (await ask(gateway)).status == 429
        gate.set()
        await until(lambda: in_use(gateway) == 0, 5)
        answer = await ask(gateway, max_tokens=10)
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) == 1000 - 5 - 15
        async with gateway.session.get(gateway.url + "/admin/usage?group=key", headers=BEARER) as told:
            (row,) = orjson.loads(await told.read())["data"]
        assert (row["key"], row["attempts"], row["prompt_tokens"]) == ("team-a", 2, 6)


async def test_a_second_target_is_an_attempt_of_its_own_and_paid_for_once() -> None:
    fakes = ScriptedProvider("fake", [UpstreamOverloaded("no")]), ScriptedProvider("other", HELLO)
    models = "models: {m: {targets: [fake/m], on_failure: [other/n]}}\nreliability: {retry: {attempts: 1}}\n"
    async with running(*fakes, extra=limited("limits: {tpm: 1000}", models)) as gateway:
        await ask(gateway, model="m", max_tokens=10)
        answer = await ask(gateway, model="m", max_tokens=10)
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) == 1000 - 5 - 15
        async with gateway.session.get(gateway.url + "/admin/usage/attempts", headers=BEARER) as told:
            rows = orjson.loads(await told.read())["data"]
        assert [(row["provider"], row["kind"], row["status"]) for row in rows[2:]] == [
            ("other", "failover", "ok"),
            ("fake", "first", "overloaded"),
        ]


@pytest.mark.parametrize(("kind", "cost"), [("openai", 0.0025 * 0.6 + 0.00125 * 0.4 + 0.01 * 0.1), ("vllm", None)])
async def test_without_a_file_of_prices_a_cost_is_what_the_maker_asks_at_its_own_api(
    kind: str, cost: float | None
) -> None:
    spent = UsageReported(Usage(prompt_tokens=1000, completion_tokens=100, cached_tokens=400))
    provider = ScriptedProvider("up", [[TextDelta(0, 0, "Hello"), *FINISH, spent]])
    text_of_file = f"version: 1\nproviders:\n  up: {{type: {kind}, base_url: 'http://127.0.0.1:9/v1'}}\n" + limited("")
    config = parse_config(text_of_file, {}, provider_types=[kind])
    async with running(provider, config=config) as gateway:
        await ask(gateway, model="up/gpt-4o")
        assert gateway.lines()[-1].get("cost_usd") == (None if cost is None else pytest.approx(cost))
