"""Names of models that clients make up: whatever remembers a name remembers few, and counts all."""

import pytest

from gateway.routing import health
from gateway.telemetry import metrics
from gateway.telemetry.series import OTHER
from gateway.usage import accounts
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, chat, running

KEY = "s3cret-s3cret"
WITH_KEY = f"auth: {{keys: [{{id: a, secret: {KEY}, limits: {{rpm: 100000}}}}]}}\ntelemetry: {{prometheus: true}}\n"
MOST = 8


async def test_40_names_leave_8_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", MOST)
    monkeypatch.setattr(health, "MAX_TARGETS", MOST)
    monkeypatch.setattr(accounts, "_MAX_KNOWN", MOST)
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider, extra=WITH_KEY) as gateway:
        for number in range(40):
            headers = {"authorization": f"Bearer {KEY}"}
            async with gateway.post(chat(f"fake/made-up-{number}"), headers=headers) as answer:
                assert answer.status == 200
        app = gateway.app
        snapshot = app.snapshot()
        assert snapshot is not None
        assert app.accounts is not None
        assert len(app.router.health) <= MOST
        assert len(app.accounts._known) <= MOST
        assert len(snapshot.requests) <= MOST + 1
        assert len(snapshot.attempts) <= MOST + 1
        assert sum(series.duration.count for series in snapshot.requests.values()) == 40
        assert sum(series.duration.count for series in snapshot.attempts.values()) == 40
        assert snapshot.attempts["fake", OTHER].duration.count == 40 - MOST
        assert next(one.value for one in snapshot.gauges if one.name == "gateway.series.left_out") == 40 - MOST
