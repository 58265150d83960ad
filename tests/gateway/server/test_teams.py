"""Teams: what several keys may use together, beside what each of them may."""

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, error_of, running
from tests.gateway.server.test_limits import PRICED, prices

COST = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6
"""Of an answer of PRICED, in dollars."""


def teamed(team: str, keys: Sequence[str] = ("one", "two"), *, rules: str = "", more: str = "") -> str:
    """Keys of the team `search` and a key `alone` of no team; `rules` are those of each key of the team."""
    lines = [f"{{id: {name}, secret: secret-{name}, team: search{rules}}}" for name in keys]
    return (
        f"auth:\n  hash_secret: pepper\n  teams: {{search: {{{team}}}}}\n"
        f"  keys: [{', '.join(lines)}, {{id: alone, secret: secret-alone, admin: true}}]\n"
        f"storage: {{url: memory}}\n{more}"
    )


async def ask(gateway: Running, key: str, model: str = "fake/m", **fields: object) -> tuple[int, str]:
    """The status, and what the error says."""
    headers = {"Authorization": f"Bearer secret-{key}"}
    async with gateway.post(chat(model, **fields), headers=headers) as answer:
        said = "" if answer.status == 200 else str((await error_of(answer))["message"])
        return answer.status, said


async def admin(gateway: Running, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    headers = {"Authorization": "Bearer secret-alone"}
    async with gateway.session.request(method, gateway.url + path, json=body, headers=headers) as answer:
        found: dict[str, object] = orjson.loads(await answer.read())
        return answer.status, found


def scripted(script: object = HELLO) -> ScriptedProvider:
    return ScriptedProvider("fake", script)  # type: ignore[arg-type]


async def test_the_keys_of_a_team_share_its_limits_and_others_do_not() -> None:
    async with running(scripted(), extra=teamed("limits: {rpm: 2}")) as gateway:
        assert [(await ask(gateway, key))[0] for key in ("one", "two")] == [200, 200]
        assert await ask(gateway, "one") == (429, (await ask(gateway, "two"))[1])
        assert (await ask(gateway, "one"))[1].startswith("this key's team is limited to 2 requests a minute")
        assert (await ask(gateway, "alone"))[0] == 200


async def test_what_the_team_refuses_is_not_taken_from_the_key() -> None:
    rules = ", limits: {rpm: 2}"
    async with running(scripted(), extra=teamed("limits: {parallel: 5}, per_model: {slow: {limits: {rpm: 1}}}",
                                                rules=rules, more="models: {slow: fake/m}\n")) as gateway:  # fmt: skip
        assert (await ask(gateway, "one", "slow"))[0] == 200
        status, said = await ask(gateway, "two", "slow")
        assert (status, said.startswith("this key's team's use of 'slow'")) == (429, True)
        assert [(await ask(gateway, "two"))[0] for _ in range(3)] == [200, 200, 429]


async def test_the_budgets_of_the_key_and_of_its_team_both_allow(tmp_path: Path) -> None:
    rules = f", budget: {{usd: {COST * 2}, per: month}}"
    team = f"budget: {{usd: {COST * 3}, per: month}}"
    extra = teamed(team, rules=rules, more=prices(tmp_path))
    async with running(scripted(PRICED), extra=extra) as gateway:
        assert [(await ask(gateway, "one", max_tokens=1))[0] for _ in range(2)] == [200, 200]
        assert (await ask(gateway, "one", max_tokens=1))[1].startswith("this key has spent its budget")
        assert (await ask(gateway, "two", max_tokens=1))[0] == 200
        assert (await ask(gateway, "two", max_tokens=1))[1].startswith("this key's team has spent its budget")


async def test_a_teams_budget_outlives_the_process_and_a_key_that_leaves_the_team(tmp_path: Path) -> None:
    team = f"budget: {{usd: {COST * 2}, per: month}}"
    kept = prices(tmp_path) + f"storage: {{url: 'sqlite:///{tmp_path}/gateway.db'}}\n"
    statuses = []
    for keys in (["one", "two"], ["two", "three"], ["three"]):
        extra = teamed(team, keys).replace("storage: {url: memory}\n", kept)
        async with running(scripted(PRICED), extra=extra) as gateway:
            statuses.append((await ask(gateway, keys[0], max_tokens=1))[0])
    assert statuses == [200, 200, 429]


async def test_a_key_narrows_the_models_of_its_team_and_widens_nothing() -> None:
    models = "models: {fast: fake/m, smart: fake/m, cheap: fake/m}\n"
    extra = teamed("models: [fast, smart]", rules=", models: [fast, cheap]", more=models)
    async with running(scripted(), extra=extra) as gateway:
        statuses = {name: (await ask(gateway, "one", name))[0] for name in ("fast", "smart", "cheap")}
        assert statuses == {"fast": 200, "smart": 403, "cheap": 403}
        headers = {"Authorization": "Bearer secret-one"}
        async with gateway.session.get(f"{gateway.url}/v1/models", headers=headers) as answer:
            assert [row["id"] for row in orjson.loads(await answer.read())["data"]] == ["fast"]


async def test_a_team_that_may_not_use_every_model_uses_no_files_of_the_account() -> None:
    async with running(scripted(), extra=teamed("models: ['fake/*']")) as gateway:
        headers = {"Authorization": "Bearer secret-one"}
        async with gateway.session.get(f"{gateway.url}/v1/files", headers=headers) as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (403, "model_not_allowed")


async def test_a_key_made_at_run_time_is_in_a_team_and_can_move() -> None:
    async with running(scripted(), extra=teamed("limits: {rpm: 1}")) as gateway:
        status, made = await admin(gateway, "POST", "/admin/keys", {"id": "new", "team": "search"})
        assert (status, made["team"]) == (201, "search")
        secret = str(made["secret"])

        async def status_of() -> int:
            async with gateway.post(chat(), headers={"Authorization": f"Bearer {secret}"}) as answer:
                return answer.status

        assert [await status_of(), await status_of()] == [200, 429]
        status, changed = await admin(gateway, "PATCH", "/admin/keys/new", {"team": None})
        assert (status, "team" in changed) == (200, False)
        assert await status_of() == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/admin/keys"), ("PATCH", "/admin/keys/there")])
async def test_a_team_that_there_is_not_is_named_when_a_key_is_made(method: str, path: str) -> None:
    async with running(scripted(), extra=teamed("limits: {rpm: 1}")) as gateway:
        await admin(gateway, "POST", "/admin/keys", {"id": "there"})
        body = {"team": "serch"} if method == "PATCH" else {"id": "new", "team": "serch"}
        status, found = await admin(gateway, method, path, body)
        assert status == 400
        error = found["error"]
        assert isinstance(error, dict)
        assert (error["param"], error["message"]) == (
            "team",
            "team: run.yaml has no team 'serch', did you mean 'search'?",
        )


async def test_a_key_whose_team_is_gone_is_refused_and_not_let_in_without_its_limits(tmp_path: Path) -> None:
    kept = f"storage: {{url: 'sqlite:///{tmp_path}/gateway.db'}}\n"
    extra = teamed("limits: {rpm: 5}").replace("storage: {url: memory}\n", kept)
    async with running(scripted(), extra=extra) as gateway:
        _, made = await admin(gateway, "POST", "/admin/keys", {"id": "new", "team": "search"})
    async with (
        running(scripted(), extra=extra.replace("search", "others")) as gateway,
        gateway.post(chat(), headers={"Authorization": f"Bearer {made['secret']}"}) as answer,
    ):
        assert (answer.status, (await error_of(answer))["code"]) == (403, "unknown_team")


async def test_usage_is_told_by_team(tmp_path: Path) -> None:
    extra = teamed("limits: {rpm: 9}", more=prices(tmp_path))
    async with running(scripted(PRICED), extra=extra) as gateway:
        for key in ("one", "two", "alone"):
            assert (await ask(gateway, key))[0] == 200
        _, found = await admin(gateway, "GET", "/admin/usage?group=team")
        rows = found["data"]
        assert isinstance(rows, list)
        assert [(row["team"], row["attempts"]) for row in rows] == [("", 1), ("search", 2)]
        assert rows[1]["cost_usd"] == pytest.approx(COST * 2)
        _, found = await admin(gateway, "GET", "/admin/usage?group=key&team=search")
        assert isinstance(found["data"], list)
        assert [row["key"] for row in found["data"]] == ["one", "two"]
        _, found = await admin(gateway, "GET", "/admin/usage/attempts")
        assert isinstance(found["data"], list)
        assert [row["team"] for row in found["data"]] == ["", "search", "search"]


async def test_a_target_may_be_for_the_keys_of_a_team_or_for_those_with_a_mark() -> None:
    providers = [ScriptedProvider(name, HELLO) for name in ("gold", "own", "rest")]
    models = (
        "models: {smart: {targets: [{use: own/m, when: {key: {id: 'tw*'}}}, "
        "{use: gold/m, when: {key: {team: search, tier: [gold, silver]}}}, rest/m]}}\n"
    )
    team = "metadata: {tier: gold, zone: eu}"
    extra = teamed(team, ["one", "two", "three"], more=models).replace(
        "{id: three,", "{id: three, metadata: {tier: tin},"
    )
    async with running(*providers, extra=extra + "telemetry: {prometheus: true}\n") as gateway:
        for key in ("one", "two", "three", "alone"):
            assert (await ask(gateway, key, "smart"))[0] == 200
        lines = {line["key"]: line["provider"] for line in gateway.lines() if line["event"] == "request"}
        assert lines == {"one": "gold", "two": "own", "three": "rest", "alone": "rest"}
        teams = {line["key"]: line.get("team") for line in gateway.lines() if line["event"] == "request"}
        assert teams == {"one": "search", "two": "search", "three": "search", "alone": None}
        headers = {"Authorization": "Bearer secret-alone"}
        async with gateway.session.get(f"{gateway.url}/metrics", headers=headers) as answer:
            metrics = await answer.text()
        assert 'gateway_key="one",gateway_team="search"' in metrics
        assert 'gateway_key="alone",gateway_team=""' in metrics


async def test_a_blocked_key_is_refused_until_it_is_let_in_again() -> None:
    async with running(scripted(), extra=teamed("limits: {rpm: 9}")) as gateway:
        _, made = await admin(gateway, "POST", "/admin/keys", {"id": "new", "metadata": {"tier": "gold"}})
        told = []
        for blocked in (True, False):
            _, changed = await admin(gateway, "PATCH", "/admin/keys/new", {"blocked": blocked})
            assert (changed["blocked"], changed["metadata"]) == (blocked, {"tier": "gold"})
            async with gateway.post(chat(), headers={"Authorization": f"Bearer {made['secret']}"}) as answer:
                told.append((answer.status, None if answer.status == 200 else (await error_of(answer))["code"]))
        assert told == [(403, "key_blocked"), (200, None)]
