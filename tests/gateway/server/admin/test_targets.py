"""GET /admin/targets: how targets stand, over a real socket."""

from typing import Any

from adapters.canonical.errors import UpstreamOverloaded
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.admin.test_keys import AUTH, ask, call, code_of, rows_of
from tests.gateway.server.running import HELLO, running

ONCE = AUTH + "reliability: {retry: {attempts: 1}, breaker: {failures: 1}}\n"


async def test_each_target_tells_its_breaker_its_pause_and_its_time_to_first_token() -> None:
    good = ScriptedProvider("good", HELLO)
    bad = ScriptedProvider("bad", [UpstreamOverloaded("no")])
    tired = ScriptedProvider("tired", [UpstreamOverloaded("later", retry_after_s=60)])
    async with running(good, bad, tired, extra=ONCE) as gateway:
        for name, status in (("good/m", 200), ("bad/m", 503), ("tired/m", 503)):
            assert await ask(gateway, "secret-of-plain", name) == status
        status, found = await call(gateway, "GET", "/admin/targets")
        assert status == 200
        rows: dict[Any, dict[str, Any]] = {row["provider"]: row for row in rows_of(found)}
    assert {name: row["breaker"] for name, row in rows.items()} == {"good": "closed", "bad": "open", "tired": "closed"}
    assert (rows["good"]["model"], rows["good"]["in_flight"], rows["good"]["refusal"]) == ("m", 0, None)
    assert rows["good"]["ttft_ms"]["whole"] >= 0
    assert rows["good"]["ttft_ms"]["stream"] is None
    assert "its breaker is open" in rows["bad"]["refusal"]
    assert "it asked for a pause" in rows["tired"]["refusal"]
    assert 50 < rows["tired"]["pause_s"] <= 60


async def test_only_admins_are_told_of_targets() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=AUTH) as gateway:
        status, found = await call(gateway, "GET", "/admin/targets", Authorization="Bearer secret-of-plain")
        assert (status, code_of(found)) == (403, "not_an_admin")
