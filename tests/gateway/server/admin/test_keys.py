"""Keys that are made while the gateway runs, and what it tells about usage."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.storage.opening import Stores
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, error_of, running
from tests.gateway.server.test_limits import PRICED, prices

ADMIN = {"Authorization": "Bearer secret-of-admin"}
AUTH = """\
auth:
  hash_secret: pepper-of-the-test
  keys:
    - {id: root, secret: secret-of-admin, admin: true}
    - {id: plain, secret: secret-of-plain}
storage: {url: memory}
"""


@asynccontextmanager
async def administered(extra: str = AUTH, script: object = HELLO) -> AsyncIterator[Running]:
    async with running(ScriptedProvider("fake", script), extra=extra) as gateway:  # type: ignore[arg-type]
        yield gateway


async def call(
    gateway: Running, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, dict[str, object]]:
    sent = {**ADMIN, **headers}
    async with gateway.session.request(method, gateway.url + path, json=body, headers=sent) as answer:
        found: dict[str, object] = orjson.loads(await answer.read())
        return answer.status, found


def code_of(found: dict[str, object]) -> object:
    error = found["error"]
    assert isinstance(error, dict)
    return error["code"]


def rows_of(found: dict[str, object]) -> list[dict[str, Any]]:
    rows = found["data"]
    assert isinstance(rows, list)
    return rows


async def ask(gateway: Running, secret: object, model: str = "fake/m") -> int:
    async with gateway.post(chat(model), headers={"Authorization": f"Bearer {secret}"}) as answer:
        await answer.read()
        return answer.status


async def stores_of(gateway: Running) -> Stores:
    return await gateway.app.stateful.storage.stores()


async def test_a_new_key_is_good_at_once_and_until_it_is_revoked() -> None:
    async with administered(AUTH + "models: {fast: fake/m}\n") as gateway:
        status, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b", "models": ["fake/*"]})
        assert status == 201
        assert await ask(gateway, made["secret"]) == 200
        assert await ask(gateway, made["secret"], "fast") == 403
        status, revoked = await call(gateway, "DELETE", "/admin/keys/team-b")
        assert status == 200
        assert revoked["revoked"] is not None
        assert await ask(gateway, made["secret"]) == 401


async def test_an_id_of_run_yaml_is_taken() -> None:
    async with administered() as gateway:
        status, found = await call(gateway, "POST", "/admin/keys", {"id": "plain"})
        assert (status, code_of(found)) == (409, "key_exists")


async def test_a_key_is_told_with_its_defaults(tmp_path: Path) -> None:
    async with administered(AUTH + prices(tmp_path)) as gateway:
        given = {"id": "team-b", "budget": {"usd": 5}, "per_model": {"fast": {"budget": {"usd": 1, "per": "hour"}}}}
        _, made = await call(gateway, "POST", "/admin/keys", given)
        assert made["budget"] == {"usd": 5, "per": "day"}
        assert made["per_model"] == {"fast": {"budget": {"usd": 1, "per": "hour"}}}
        del made["secret"]
        assert await call(gateway, "GET", "/admin/keys/team-b") == (200, made)
        assert (made["models"], made["admin"]) == (["*"], False)


@pytest.mark.parametrize("model", ["hidden", "nowhere", "fake/other", "bare"])
async def test_a_limited_key_cannot_tell_what_there_is_from_what_there_is_not(model: str) -> None:
    async with administered(AUTH + "models: {hidden: fake/m}\n") as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b", "models": ["fake/m"]})
        headers = {"Authorization": f"Bearer {made['secret']}"}
        async with gateway.post(chat(model), headers=headers) as answer:
            error = await error_of(answer)
            assert (answer.status, error["code"]) == (403, "model_not_allowed")
            assert error["message"] == f"this key may not use the model '{model}'"


async def test_a_secret_is_shown_once_and_kept_nowhere() -> None:
    async with administered() as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b"})
        secret = str(made["secret"])
        await ask(gateway, secret)
        _, listed = await call(gateway, "GET", "/admin/keys")
        kept, _ = await (await stores_of(gateway)).client_keys.list(None, 10)
        assert [key.id for key in kept] == ["team-b"]
        for place in (orjson.dumps(listed), repr(kept).encode(), gateway.log.getvalue()):
            assert secret.encode() not in place
        assert secret[3:].encode() not in kept[0].hash


async def test_a_key_made_at_run_time_has_limits_of_its_own() -> None:
    async with administered() as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b", "limits": {"rpm": 1}})
        assert [await ask(gateway, made["secret"]) for _ in range(2)] == [200, 429]


async def test_limits_that_are_raised_hold_at_once_and_nothing_else_changes() -> None:
    async with administered() as gateway:
        given = {"id": "team-b", "models": ["fake/*"], "limits": {"rpm": 1, "tpm": 90_000}, "days": 1}
        _, made = await call(gateway, "POST", "/admin/keys", given)
        assert [await ask(gateway, made["secret"]) for _ in range(2)] == [200, 429]
        status, changed = await call(gateway, "PATCH", "/admin/keys/team-b", {"limits": {"rpm": 3}})
        assert status == 200
        assert changed == {
            **{name: made[name] for name in made if name != "secret"},
            "limits": {"rpm": 3, "tpm": 90_000},
        }
        assert [await ask(gateway, made["secret"]) for _ in range(3)] == [200, 200, 429]
        _, changed = await call(gateway, "PATCH", "/admin/keys/team-b", {"limits": None, "days": None, "models": ["x"]})
        assert (changed.get("limits"), changed["expires"], changed["models"]) == (None, None, ["x"])
        assert await ask(gateway, made["secret"]) == 403


async def test_a_rotated_key_keeps_its_name_and_limits_and_its_old_secret_is_good_no_more() -> None:
    async with administered() as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b", "limits": {"rpm": 2}})
        assert await ask(gateway, made["secret"]) == 200
        status, rotated = await call(gateway, "POST", "/admin/keys/team-b/rotate")
        assert (status, rotated["id"], rotated["limits"]) == (200, "team-b", {"rpm": 2})
        assert await ask(gateway, made["secret"]) == 401
        assert [await ask(gateway, rotated["secret"]) for _ in range(2)] == [200, 429]
        _, listed = await call(gateway, "GET", "/admin/keys")
        assert [row["id"] for row in rows_of(listed)] == ["team-b"]
        assert str(rotated["secret"]) not in str(listed) + gateway.log.getvalue().decode()


async def test_an_old_secret_is_good_for_its_grace_and_revoked_with_its_key() -> None:
    async with administered() as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b"})
        _, rotated = await call(gateway, "POST", "/admin/keys/team-b/rotate", {"grace_s": 60})
        secrets = [made["secret"], rotated["secret"]]
        assert [await ask(gateway, secret) for secret in secrets] == [200, 200]
        until = rotated["previous_until"]
        assert isinstance(until, int)
        assert 50 < until - time.time() <= 60
        _, again = await call(gateway, "POST", "/admin/keys/team-b/rotate", {"grace_s": 60})
        assert [await ask(gateway, secret) for secret in (*secrets, again["secret"])] == [401, 200, 200]
        await call(gateway, "DELETE", "/admin/keys/team-b")
        assert [await ask(gateway, secret) for secret in (*secrets, again["secret"])] == [401, 401, 401]
        for method, path in (("PATCH", "/admin/keys/team-b"), ("POST", "/admin/keys/team-b/rotate")):
            status, found = await call(gateway, method, path, {})
            assert (status, code_of(found)) == (409, "key_revoked")


async def test_a_key_is_good_for_its_days() -> None:
    async with administered() as gateway:
        _, made = await call(gateway, "POST", "/admin/keys", {"id": "team-b", "days": 1})
        expires = made["expires"]
        assert isinstance(expires, int)
        assert abs(expires - time.time() - 86_400) < 60
        _, short = await call(gateway, "POST", "/admin/keys", {"id": "short", "days": 1e-9})
        assert await ask(gateway, short["secret"]) == 401


async def test_keys_are_listed_in_pages() -> None:
    async with administered() as gateway:
        for name in ("c", "a", "b"):
            await call(gateway, "POST", "/admin/keys", {"id": name})
        _, page = await call(gateway, "GET", "/admin/keys?limit=2")
        assert [key["id"] for key in rows_of(page)] == ["a", "b"]
        assert page["has_more"] is True
        _, page = await call(gateway, "GET", "/admin/keys?limit=2&after=b")
        assert [key["id"] for key in rows_of(page)] == ["c"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("POST", "/admin/keys", {}, 400, "id"),
        ("POST", "/admin/keys", {"id": "b", "limits": {"rpm": -1}}, 400, "limits.rpm"),
        ("POST", "/admin/keys", {"id": "b", "colour": 1}, 400, "colour"),
        ("GET", "/admin/keys?limit=x", None, 400, "limit"),
        ("GET", "/admin/keys/nobody", None, 404, "id"),
        ("DELETE", "/admin/keys/nobody", None, 404, "id"),
        ("PATCH", "/admin/keys/nobody", {}, 404, "id"),
        ("PATCH", "/admin/keys/a", {"id": "b"}, 400, "id"),
        ("PATCH", "/admin/keys/a", {"limits": {"rpm": 0}}, 400, "limits.rpm"),
        ("PATCH", "/admin/keys/a", {"budget": {"per": "day"}}, 400, "budget.usd"),
        (
            "PATCH",
            "/admin/keys/a",
            {"per_model": {"m": {"limits": {"rpm": {"x": {"y": {}}}}}}},
            400,
            "per_model.m.limits.rpm",
        ),
        ("PATCH", "/admin/keys/a", [], 400, None),
        ("POST", "/admin/keys/nobody/rotate", None, 404, "id"),
        ("POST", "/admin/keys/a/rotate", {"grace_s": -1}, 400, "grace_s"),
        ("POST", "/admin/keys/a/turn", {}, 404, None),
        ("GET", "/admin/usage?group=colour", None, 400, "group"),
        ("GET", "/admin/usage?since=yesterday", None, 400, "since"),
        ("GET", "/admin/usage?format=xlsx", None, 400, "format"),
    ],
)
async def test_what_is_wrong_is_named(method: str, path: str, body: object, status: int, param: str | None) -> None:
    async with administered() as gateway:
        await call(gateway, "POST", "/admin/keys", {"id": "a"})
        found, answer = await call(gateway, method, path, body)
        assert found == status
        error = answer["error"]
        assert isinstance(error, dict)
        assert error["param"] == param


async def test_an_id_is_taken_once_even_after_it_was_revoked() -> None:
    async with administered() as gateway:
        await call(gateway, "POST", "/admin/keys", {"id": "a"})
        await call(gateway, "DELETE", "/admin/keys/a")
        status, _ = await call(gateway, "POST", "/admin/keys", {"id": "a"})
        assert status == 409


@pytest.mark.parametrize(("method", "path"), [("POST", "/admin/keys"), ("GET", "/admin/keys"), ("GET", "/admin/usage")])
async def test_only_admins_may_call_the_admin_routes(method: str, path: str) -> None:
    async with administered() as gateway:
        status, _ = await call(gateway, method, path, {"id": "x"}, Authorization="Bearer secret-of-plain")
        assert status == 403
        status, _ = await call(gateway, method, path, {"id": "x"}, Authorization="Bearer nobody")
        assert status == 401


async def test_without_a_secret_for_hashes_no_key_is_made() -> None:
    async with (
        administered(AUTH.replace("  hash_secret: pepper-of-the-test\n", "")) as gateway,
        gateway.session.post(gateway.url + "/admin/keys", json={"id": "a"}, headers=ADMIN) as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["code"] == "no_hash_secret"


async def test_a_database_that_is_away_at_the_start_is_no_fault_of_the_gateway() -> None:
    away = AUTH.replace("{url: memory}", "{url: 'postgresql://u:secret@127.0.0.1:1/d'}")
    async with administered(away) as gateway:
        assert await ask(gateway, "secret-of-plain") == 200
        assert {line["event"] for line in gateway.lines()} >= {"storage_failed", "request"}
        assert "internal_error" not in {line["event"] for line in gateway.lines()}


async def test_usage_is_told_by_key_model_provider_and_day(tmp_path: Path) -> None:
    extra = AUTH + prices(tmp_path) + "models: {fast: fake/m}\n"
    cost = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6
    async with administered(extra, PRICED) as gateway:
        assert [await ask(gateway, "secret-of-plain", name) for name in ("fast", "fast", "fake/m")] == [200] * 3
        assert await ask(gateway, "secret-of-admin", "fast") == 200
        _, found = await call(gateway, "GET", "/admin/usage?group=key,model")
        rows = {(row["key"], row["model"]): row for row in rows_of(found)}
        assert {place: row["attempts"] for place, row in rows.items()} == {
            ("plain", "fast"): 2,
            ("plain", "fake/m"): 1,
            ("root", "fast"): 1,
        }
        row = rows["plain", "fast"]
        assert (row["prompt_tokens"], row["completion_tokens"]) == (2000, 200)
        assert (row["cached_tokens"], row["cache_write_tokens"]) == (800, 400)
        assert row["cost_usd"] == pytest.approx(2 * cost)
        _, found = await call(gateway, "GET", "/admin/usage?group=provider,day&key=plain")
        (day,) = rows_of(found)
        assert (day["provider"], day["attempts"]) == ("fake", 3)
        assert day["day"] == datetime.now(UTC).date().isoformat()
        _, found = await call(gateway, "GET", "/admin/usage?until=2001-01-01")
        assert found["data"] == []


async def test_usage_is_a_table_that_no_client_can_write_formulas_into(tmp_path: Path) -> None:
    extra = AUTH + prices(tmp_path) + "models: {=SUM(A1): fake/m, 'a,b': fake/m}\n"
    headers = {"authorization": "Bearer secret-of-admin"}
    async with administered(extra, PRICED) as gateway:
        assert [await ask(gateway, "secret-of-plain", name) for name in ("=SUM(A1)", "a,b")] == [200] * 2
        path = f"{gateway.url}/admin/usage?group=model&format=csv"
        async with gateway.session.get(path, headers=headers) as answer:
            assert answer.headers["content-type"] == "text/csv; charset=utf-8"
            lines = (await answer.text()).splitlines()
        assert lines[0].startswith("model,attempts,")
        assert [line.split(",1,")[0] for line in lines[1:]] == ["'=SUM(A1)", '"a,b"']
        async with gateway.session.get(f"{path}&until=2001-01-01", headers=headers) as answer:
            assert (await answer.text()).splitlines() == lines[:1]
        async with gateway.session.get(f"{path}&limit=1", headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["param"]) == (400, "format")


async def test_single_attempts_are_told_newest_first() -> None:
    async with administered() as gateway:
        await ask(gateway, "secret-of-plain")
        await ask(gateway, "secret-of-admin")
        _, found = await call(gateway, "GET", "/admin/usage/attempts")
        assert [row["key"] for row in rows_of(found)] == ["root", "plain"]
        _, found = await call(gateway, "GET", "/admin/usage/attempts?key=plain&limit=5")
        (row,) = rows_of(found)
        assert row["status"] == "ok"
        assert (row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]) == (3, 2, None)
        assert row["cost_usd"] is None
