"""What is decided before a request: the configuration, secrets, names of models, addresses that may be fetched."""

import asyncio
import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from gateway.cli import main
from gateway.config import ConfigError, parse_config
from providers.local.image_input import ReadyImage
from providers.registry import provider_types
from tests.cases.case import Case
from tests.cases.reply import message_of
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer

__all__ = ["CHECKS"]

_SECRET = "SECRET-123"
_GOOD = "version: 1\nproviders: {oai: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"


def _faults(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, {}, provider_types=provider_types())
    return str(raised.value)


async def _cf_01(case: Case) -> None:
    text: str = case.facts["setup"]["config"]
    told = _faults(text)
    assert "unknown key 'general_setting'" in told or "general_setting: unknown key" in told
    assert ":1" in told
    wrong = {
        "severs: {}\n": "server",
        "server: {prot: 8080}\n": "port",
        "server: {port: many}\n": "port",
        "server: {tls: {certs: a.pem, key: b.pem}}\n": "cert",
        "auth: {keys: [{id: a, secret: abcdefgh, modles: [x]}]}\n": "models",
        "models: {m: {targets: [oai/x], strategy: fastest}}\n": "strategy",
        "models: {m: {targets: [{use: oai/x, wieght: 1}]}}\n": "weight",
        "models: {m: oai/x, m: oai/y}\n": "m",
        "models: {m: oia/x}\n": "oai",
        "reliability: {retry: {attempts: '2 times'}}\n": "attempts",
        "cache: {exat: {}}\n": "exact",
    }
    assert parse_config(_GOOD, {}, provider_types=provider_types()).providers
    for extra, named in wrong.items():
        told = _faults(_GOOD + extra)
        assert named in told, (extra, told)
        assert "run.yaml:3" in told, (extra, told)


async def _cf_01_check_mode(case: Case) -> None:
    with TemporaryDirectory() as folder:
        for text, status in ((case.facts["setup"]["config"], 1), (_GOOD, 0)):
            path = Path(folder) / "run.yaml"
            path.write_text(text)
            out, errors = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                found = await asyncio.to_thread(main, ["check", "--config", str(path)])
            assert found == status, errors.getvalue()
            assert ("general_setting" in errors.getvalue()) == bool(status)


@contextlib.contextmanager
def _everything_said() -> Iterator[io.StringIO]:
    """What goes to stdout, stderr and every logger, at the lowest level."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            yield said
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


async def _sec_04(case: Case) -> None:
    with _everything_said() as said:
        async with staged(case, key=_SECRET) as stage:
            await _check_redacted(stage, case)
            for seen in stage.upstream.requests:
                assert seen.headers["x-goog-api-key"] == _SECRET
                assert _SECRET not in seen.path
    assert "SECRET" not in said.getvalue()


async def _check_redacted(stage: Any, case: Case) -> None:
    for status in (404, 400, 500, 429):
        answer = case.answer()
        stage.upstream.script(Answer(status=status, headers=answer.headers, pieces=answer.pieces, framing="length"))
        for reply in await stage.both(case.body):
            assert reply.status >= 400
            assert b"SECRET" not in reply.body
            assert "SECRET" not in str(reply.headers)
    assert "SECRET" not in str(stage.log_lines())


async def _sec_04_openai(case: Case) -> None:
    remote = case.towards("oai/none")
    failing = [
        Answer.sse([b'data: {"error": {"message": "no key=SECRET-123", "type": "server_error"}}\n\n']),
        Answer.sse(
            [
                b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "par"}}]}\n\n',
                b'data: {"error": {"message": "no key=SECRET-123", "type": "server_error"}}\n\n',
            ]
        ),
        Answer.json(b'{"error": {"message": "no key=SECRET-123", "code": "SECRET-123", "type": "SECRET-123"}}'),
        Answer(headers={"content-type": "text/html"}, pieces=[b"<p>key=SECRET-123</p>"], framing="length"),
        Answer.json(b"not json SECRET-123"),
        Answer.json(b"{}", 401),
    ]
    with _everything_said() as said:
        async with staged(remote, *[case.answer()], key=_SECRET) as stage:
            redirected = Case(case.id, {**case.facts, "request": remote.facts["request"]})
            await _check_redacted(stage, redirected)
            for answer in failing:
                stage.upstream.script(answer)
                for reply in await stage.both(remote.body):
                    assert b"SECRET" not in reply.body, reply.body
                    assert "SECRET" not in str(reply.headers)
            unknown = await stage.post(remote.body_with(model=f"nowhere/{_SECRET}"))
            assert _SECRET.encode() not in unknown.body
            assert all(seen.headers["authorization"] == f"Bearer {_SECRET}" for seen in stage.upstream.requests)
            assert all(_SECRET not in seen.path for seen in stage.upstream.requests)
            log = stage.log_lines()
        assert "SECRET" not in str(log)
    assert _SECRET not in said.getvalue()


async def _lo_01(case: Case) -> None:
    with TemporaryDirectory() as folder:
        local = Local(settings={"adapters": {"sql-expert": folder}})
        local.says("ok")
        async with staged(case, local=local) as stage:
            reply = await stage.post()
            assert (reply.status, reply.error["code"]) == (404, "model_not_found")
            assert "sql-expert" not in reply.error["message"]
            answer = (await stage.post(case.body_with(model="base:sql-expert"))).ok
            assert answer["model"] == "base:sql-expert"
            assert local.engine.requests[0].adapter == "sql-expert"
            listed = [row["id"] for row in (await stage.get("/v1/models")).ok["data"]]
            assert any(name.endswith("base:sql-expert") for name in listed)


async def _lo_01_no_adapters(case: Case) -> None:
    """Where nothing of that name is loaded, the base model does not answer in its place."""
    local = Local()
    local.says("ok")
    async with staged(case, local=local) as stage:
        for name in ("base:sql-exprt", "local/base:sql-exprt", "base:", "local/base:", ":base", "bas"):
            reply = await stage.post(case.body_with(model=name))
            assert (reply.status, reply.error["code"]) == (404, "model_not_found"), name
        assert local.engine.requests == []
        assert (await stage.post(case.body_with(model="base"))).ok["model"] == "base"


async def _sec_03(case: Case) -> None:
    """An allowed host that sends on to an internal address gets nothing fetched from there."""
    fetch = {"schemes": ["https", "http"], "allow_hosts": ["127.0.0.1"]}
    redirect = Answer(status=302, headers=case.upstream["headers"], framing="length")
    local = Local(images=_AnyImage())
    async with staged(case, redirect, local=local, config={"fetch": fetch}) as stage:
        body = case.body
        body["messages"][0]["content"][1]["image_url"]["url"] = f"{stage.upstream.base_url}/a.png"
        reply = await stage.post(body)
        assert (reply.status, reply.error["param"]) == (400, "messages[0].content[1]")
        assert b"169.254" not in reply.body
        assert len(stage.upstream.requests) == 1
        assert local.engine.requests == []


class _AnyImage:
    """Reads any file as an image."""

    mark, token_id = "<image>", 0

    def ready(self, raw: bytes, path: str) -> ReadyImage:
        return ReadyImage("\0", (np.zeros((3, 2, 2), np.float32),), 1)


async def _sec_03_off(case: Case) -> None:
    """As long as nothing is allowed, nothing is fetched, whatever the scheme."""
    local = Local()
    local.says("ok")
    async with staged(case, Answer(status=302, headers=case.upstream["headers"]), local=local) as stage:
        host = stage.upstream.base_url.removeprefix("http://")
        urls = [f"{scheme}://{host}/a.png" for scheme in ("http", "https", "gopher", "ftp")]
        for url in [
            *urls,
            "file:///etc/hostname",
            "data:text/html,<p>x</p>",
            case.body["messages"][0]["content"][1]["image_url"]["url"],
        ]:
            body = case.body
            body["messages"][0]["content"][1]["image_url"]["url"] = url
            reply = await stage.post(body)
            assert (reply.status, reply.error["type"]) == (400, "invalid_request_error"), url
        assert stage.upstream.connections == 0
        assert local.engine.requests == []


async def _sec_03_remote(case: Case) -> None:
    """Towards a provider that takes images, an address goes as it is; the gateway does not open it."""
    remote = case.towards("oai/vlm")
    choice = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}'
    async with staged(remote, Answer.json(choice)) as stage:
        body = remote.body
        url = f"{stage.upstream.base_url}/a.png"
        body["messages"][0]["content"][1]["image_url"]["url"] = url
        assert message_of((await stage.post(body)).ok).content == "ok"
        assert stage.sent()["messages"][0]["content"][1]["image_url"]["url"] == url
        assert len(stage.upstream.requests) == 1


CHECKS = {
    "CF-01": _cf_01,
    "CF-01/check-mode": _cf_01_check_mode,
    "SEC-04": _sec_04,
    "SEC-04/openai-compatible": _sec_04_openai,
    "LO-01": _lo_01,
    "LO-01/no-adapters": _lo_01_no_adapters,
    "SEC-03": _sec_03,
    "SEC-03/off": _sec_03_off,
    "SEC-03/remote": _sec_03_remote,
}
