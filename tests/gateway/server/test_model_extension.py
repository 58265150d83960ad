"""What lists of models say of a model beside its name: under `gateway`, and as the window that no provider tells."""

from typing import Any

import pytest

from providers.base import ModelEntry
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, running

ALIASES = "models: {smart: {targets: [fake/claude-opus-5, fake/x]}}\n"
MODELS = (
    ModelEntry(id="gpt-4o", context=7),
    ModelEntry(id="claude-opus-5"),
    ModelEntry(id="gpt-5.5"),
    ModelEntry(id="home-made"),
)


async def listed(gateway: Running) -> dict[str, Any]:
    async with gateway.session.get(gateway.url + "/v1/models") as answer:
        return {row["id"]: row for row in (await answer.json())["data"]}


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider("fake", HELLO, models=MODELS)


async def test_a_known_model_is_told_with_its_abilities_and_prices(provider: ScriptedProvider) -> None:
    async with running(provider, extra=ALIASES) as gateway:
        rows = await listed(gateway)
    found = rows["fake/claude-opus-5"]["gateway"]
    assert found["targets"] == ["fake/claude-opus-5"]
    assert found["input"] == ["text", "image", "pdf"]
    assert (found["tools"], found["reasoning"], found["sampling"]) == (True, True, [])
    assert found["structured_output"] == "json_schema"
    assert found["prices"] == {
        "currency": "USD",
        "per_tokens": 1_000_000,
        "input": 5.0,
        "output": 25.0,
        "cache_read": 0.5,
        "cache_write": 6.25,
        "cache_write_1h": 10.0,
    }


async def test_a_model_that_costs_more_for_long_prompts_is_told_with_both_prices(provider: ScriptedProvider) -> None:
    async with running(provider) as gateway:
        rows = await listed(gateway)
    prices = rows["fake/gpt-5.5"]["gateway"]["prices"]
    assert (prices["input"], prices["output"]) == (5.0, 30.0)
    assert prices["long"] == {"above": 272_000, "input": 10.0, "output": 45.0, "cache_read": 1.0}


async def test_the_window_is_the_providers_word_where_it_says_one(provider: ScriptedProvider) -> None:
    async with running(provider, extra=ALIASES) as gateway:
        rows = await listed(gateway)
    assert rows["fake/gpt-4o"]["context_window"] == 7
    assert rows["fake/claude-opus-5"]["context_window"] == 1_000_000
    assert "context_window" not in rows["fake/home-made"]


async def test_an_alias_is_told_with_its_targets_and_what_the_first_one_is(provider: ScriptedProvider) -> None:
    async with running(provider, extra=ALIASES) as gateway:
        rows = await listed(gateway)
    assert rows["smart"]["gateway"]["targets"] == ["fake/claude-opus-5", "fake/x"]
    assert rows["smart"]["gateway"]["family"] == "claude"
    assert rows["smart"]["context_window"] == 1_000_000


async def test_an_alias_has_the_window_that_its_first_target_tells(provider: ScriptedProvider) -> None:
    aliases = "models: {four: fake/gpt-4o, mine: fake/home-made}\n"
    async with running(provider, extra=aliases) as gateway:
        rows = await listed(gateway)
        async with gateway.session.get(gateway.url + "/v1/models/four") as answer:
            assert await answer.json() == rows["four"]
    assert (rows["four"]["context_window"], rows["four"]["gateway"]["context_window"]) == (7, 7)
    assert "context_window" not in rows["mine"]


async def test_of_a_model_that_nobody_knows_only_the_target_is_told(provider: ScriptedProvider) -> None:
    async with running(provider) as gateway:
        rows = await listed(gateway)
    assert rows["fake/home-made"]["gateway"] == {"targets": ["fake/home-made"]}
