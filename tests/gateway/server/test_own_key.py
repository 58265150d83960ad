"""A client asks what limits its own key, and what is left."""

from pathlib import Path

import orjson
import pytest

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, error_of, running
from tests.gateway.server.test_limits import PRICED, prices
from tests.gateway.server.test_teams import COST, ask, teamed

NOTHING = {"rpm": None, "tpm": None, "parallel": None, "budget": None}


async def shown(gateway: Running, key: str) -> dict[str, object]:
    headers = {"Authorization": f"Bearer secret-{key}"}
    async with gateway.session.get(f"{gateway.url}/v1/key", headers=headers) as answer:
        assert answer.status == 200
        found: dict[str, object] = orjson.loads(await answer.read())
        return found


async def test_a_key_is_told_its_limits_and_what_its_team_has_left(tmp_path: Path) -> None:
    rules = ", limits: {rpm: 60}, per_model: {'fake/*': {limits: {tpm: 9000}}}"
    extra = teamed(f"budget: {{usd: {COST * 4}, per: ever}}", rules=rules, more=prices(tmp_path))
    async with running(ScriptedProvider("fake", PRICED), extra=extra) as gateway:
        assert [(await ask(gateway, key, max_tokens=1))[0] for key in ("one", "two")] == [200, 200]
        assert gateway.app.accounts is not None
        assert gateway.app.accounts.ledger is not None
        await gateway.app.accounts.ledger.flush()
        found = await shown(gateway, "one")
    assert (found["object"], found["id"], found["team"]) == ("key", "one", "search")
    limits = found["limits"]
    assert isinstance(limits, list)
    assert limits[:2] == [
        {**NOTHING, "of": "key", "model": None, "rpm": 60},
        {**NOTHING, "of": "key", "model": "fake/*", "tpm": 9000},
    ]
    budget = limits[2].pop("budget")
    assert limits[2:] == [{"of": "team", "model": None, "rpm": None, "tpm": None, "parallel": None}]
    assert (budget["per"], budget["until"]) == ("ever", None)
    assert [budget[name] for name in ("usd", "spent_usd", "left_usd")] == pytest.approx([COST * 4, COST * 2, COST * 2])


async def test_a_key_without_limits_has_none() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=teamed("")) as gateway:
        assert await shown(gateway, "alone") == {"object": "key", "id": "alone", "team": None, "limits": []}


async def test_the_end_of_the_period_is_told_and_a_budget_that_is_overspent_has_nothing_left(tmp_path: Path) -> None:
    extra = teamed("", rules=f", budget: {{usd: {COST / 2}, per: month}}", more=prices(tmp_path))
    async with running(ScriptedProvider("fake", PRICED), extra=extra) as gateway:
        assert (await ask(gateway, "one", max_tokens=1))[0] == 200
        assert gateway.app.accounts is not None
        assert gateway.app.accounts.ledger is not None
        await gateway.app.accounts.ledger.flush()
        limits = (await shown(gateway, "one"))["limits"]
    assert isinstance(limits, list)
    assert limits[0]["budget"]["left_usd"] == 0
    assert limits[0]["budget"]["until"] > 1_700_000_000


async def test_without_keys_there_is_none_to_tell_of() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.session.get(f"{gateway.url}/v1/key") as answer,
    ):
        assert answer.status == 404
        assert (await error_of(answer))["code"] == "no_key"
