"""What people are told of over a real socket: budgets that are used up, and targets that fail."""

import json
from pathlib import Path

import pytest

from adapters.canonical.errors import UpstreamUnreachable
from gateway.config import ConfigError
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import chat, configure, running
from tests.gateway.server.test_limits import BEARER, PRICED, limited, prices
from tests.mock_upstream import Answer, MockUpstream

COST = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6


async def test_a_budget_is_told_of_when_it_is_used_and_when_it_refuses(tmp_path: Path) -> None:
    async with MockUpstream(Answer()) as hook:
        extra = limited(f"budget: {{usd: {COST}, per: ever}}", prices(tmp_path))
        extra += f"alerts: {{webhook: '{hook.base_url}', budget: [0.5, 0.9]}}\n"
        async with running(ScriptedProvider("fake", PRICED), extra=extra) as gateway:
            told = []
            for _ in range(3):
                async with gateway.post(chat(max_tokens=1), headers=BEARER) as answer:
                    await answer.read()
                    told.append(answer.status)
        alerts = {alert["event"]: alert for alert in (json.loads(request.body) for request in hook.requests)}
        assert told == [200, 429, 429]
        assert len(hook.requests) == 2
        assert alerts["budget_spent"]["scope"] == "key:team-a"
        assert alerts["budget_used"]["share"] == 0.9
        assert alerts["budget_used"]["spent_usd"] == pytest.approx(COST)
        lines = [line["alert"] for line in gateway.lines() if line["event"] == "alert"]
        assert lines == ["budget_spent", "budget_used"]


async def test_a_target_whose_breaker_opens_is_told_of_once() -> None:
    async with MockUpstream(Answer()) as hook:
        extra = "reliability: {retry: {attempts: 1}, breaker: {failures: 2}}\n"
        extra += f"alerts: {{webhook: '{hook.base_url}'}}\n"
        down = ScriptedProvider("fake", [UpstreamUnreachable("gone")])
        async with running(down, extra=extra) as gateway:
            for _ in range(4):
                async with gateway.post(chat()) as answer:
                    assert answer.status == 502
        (request,) = hook.requests
        alert = json.loads(request.body)
        assert (alert["event"], alert["provider"], alert["model"]) == ("target_down", "fake", "m")


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{}", "alerts.webhook: the key is missing"),
        ("{webhook: hooks.example.com}", "alerts.webhook: expected an http:// or https:// address"),
        ("{webhook: 'http://[::'}", "alerts.webhook: expected an http:// or https:// address"),
        ("{webhook: 'https://a.example', budget: [80]}", "alerts.budget[0]: expected less than 1, got 80"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(f"alerts: {section}\n")
    assert fault in str(caught.value)
