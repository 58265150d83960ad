"""What each end user of a key may use, beside what the key may."""

from pathlib import Path

import orjson
import pytest

from gateway.limits import in_process
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, running
from tests.gateway.server.test_limits import BEARER, PRICED, limited, prices, serving

COST = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6


async def status(gateway: Running, by_header: str | None, **fields: object) -> int:
    headers = BEARER if by_header is None else {**BEARER, "x-gateway-user": by_header}
    async with gateway.post(chat(**fields), headers=headers) as answer:  # type: ignore[arg-type]
        await answer.read()
        return answer.status


async def test_each_user_has_a_minute_of_his_own_and_the_key_bounds_them_all() -> None:
    extra = limited("limits: {rpm: 6}, per_user: {limits: {rpm: 2}}")
    async with serving(extra=extra) as gateway:
        asked = ["ann", "ann", "ann", "bob", None, None, None, "cy", "dee"]
        told = [await status(gateway, user) for user in asked]
        assert told == [200, 200, 429, 200, 200, 200, 429, 200, 429]


async def test_the_body_names_a_user_as_well_and_the_refusal_says_who_is_limited() -> None:
    async with serving(extra=limited("per_user: {limits: {rpm: 1}}")) as gateway:
        assert [await status(gateway, None, user=user) for user in ("ann", "bob", "ann")] == [200, 200, 429]
        async with gateway.post(chat(user="bob"), headers=BEARER) as answer:
            assert b"this user is limited to 1 requests a minute" in await answer.read()
            assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        body = {"model": "fake/m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        told = []
        for user in ("cy", "cy"):
            async with gateway.post({**body, "metadata": {"user_id": user}}, "/v1/messages", headers=BEARER) as answer:
                told.append(answer.status)
        assert told == [200, 429]


async def test_a_users_budget_outlives_the_process_and_is_told_in_usage(tmp_path: Path) -> None:
    rules = f"per_user: {{budget: {{usd: {COST * 2}, per: month}}}}"
    extra = limited(rules, prices(tmp_path)).replace("url: memory", f"url: 'sqlite:///{tmp_path}/gateway.db'")
    told = []
    for _ in range(3):
        async with serving(PRICED, PRICED, extra=extra) as gateway:
            told.append(await status(gateway, "ann", max_tokens=1))
            async with gateway.session.get(f"{gateway.url}/admin/usage?group=end_user", headers=BEARER) as answer:
                rows = orjson.loads(await answer.read())["data"]
    assert told == [200, 200, 429]
    assert [(row["end_user"], row["cost_usd"]) for row in rows] == [("ann", pytest.approx(COST * 2))]


async def test_users_of_a_team_are_the_same_whichever_key_they_come_by() -> None:
    extra = (
        "auth:\n  teams: {search: {per_user: {limits: {rpm: 1}}}}\n  keys:\n"
        "    - {id: a, secret: secret-a, team: search}\n    - {id: b, secret: secret-b, team: search}\n"
    )
    async with running(ScriptedProvider("fake", HELLO), extra=extra + "storage: {url: memory}\n") as gateway:
        told = []
        for key, user in (("a", "ann"), ("b", "ann"), ("b", "bob")):
            headers = {"Authorization": f"Bearer secret-{key}", "x-gateway-user": user}
            async with gateway.post(chat(), headers=headers) as answer:
                told.append(answer.status)
    assert told == [200, 429, 200]


async def test_users_are_not_told_apart_where_nothing_is_limited_by_user() -> None:
    async with serving(extra=limited("limits: {rpm: 9}")) as gateway:
        assert await status(gateway, "ann") == 200
        async with gateway.session.get(f"{gateway.url}/admin/usage/attempts", headers=BEARER) as answer:
            (row,) = orjson.loads(await answer.read())["data"]
        assert row["end_user"] == ""


def test_what_a_scope_spent_is_forgotten_where_the_database_can_tell_it_again() -> None:
    counts = in_process._Counts()
    counts.begin_period("month", 1000.0)
    counts.second, counts.spent = 1000, 5
    assert not counts.is_idle(2000, 2000.0)
    counts.is_loaded = True
    assert not counts.is_idle(1060, 1060.0)
    assert counts.is_idle(1061, 1061.0)
