"""A reload takes the file as it is now, in one step, and no running request notices."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from gateway.config import Config, load_config
from gateway.http.server import Connections
from gateway.server.app import Surroundings, build_app
from gateway.server.inheritance import Inheritance
from gateway.server.lifetime import App
from gateway.server.process.live import Live
from providers.registry import provider_types
from tests.certificates import certificate
from tests.gateway.server.running import chat, until
from tests.mock_upstream import Answer, MockUpstream

GOOD = Answer.json(
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
)


@dataclass
class Serving:
    live: Live
    session: aiohttp.ClientSession
    url: str
    path: Path
    log: io.BytesIO

    def write(self, text: str) -> None:
        self.path.write_text(f"version: 1\nstorage: {{url: memory}}\n{text}")

    async def ask(self, model: str) -> int:
        async with self.session.post(f"{self.url}/v1/chat/completions", json=chat(model)) as answer:
            await answer.read()
            return answer.status

    async def reload(self) -> tuple[int, dict[str, object]]:
        async with self.session.post(f"{self.url}/admin/reload") as answer:
            return answer.status, orjson.loads(await answer.read())


def provider(upstream: MockUpstream, name: str = "up", more: str = "") -> str:
    return f"providers: {{{name}: {{type: openai-compatible, base_url: '{upstream.base_url}'{more}}}}}\n"


@asynccontextmanager
async def serving(folder: Path, text: str) -> AsyncIterator[Serving]:
    path = folder / "run.yaml"
    path.write_text(f"version: 1\nstorage: {{url: memory}}\n{text}")
    log = io.BytesIO()

    def load() -> Config:
        return load_config(path, {}, provider_types=provider_types())

    def build(config: Config, inherited: Inheritance) -> App:
        return build_app(config, around=Surroundings(log=log), inherited=inherited, reload=lambda: live.reload())

    live = Live(load(), load, build)
    await live.app.start()
    connections = Connections(live.main)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession() as session:
        try:
            yield Serving(live, session, url, path, log)
        finally:
            server.close()
            await live.drain(0)
            await connections.shutdown(1)
            await live.aclose()


async def test_a_new_name_works_after_a_reload_on_the_same_connection(tmp_path: Path) -> None:
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream)) as gateway:
        assert await gateway.ask("fast") == 404
        gateway.write(provider(upstream) + "models: {fast: up/m}\n")
        assert await gateway.reload() == (200, {"status": "reloaded"})
        assert await gateway.ask("fast") == 200


async def test_a_running_request_ends_where_it_began(tmp_path: Path) -> None:
    gate = asyncio.Event()
    slow = Answer(headers=GOOD.headers, pieces=GOOD.pieces, framing="length", gate=gate)
    async with (
        MockUpstream(slow, GOOD) as old,
        MockUpstream(GOOD) as new,
        serving(tmp_path, provider(old)) as gateway,
    ):
        running = asyncio.create_task(gateway.ask("up/m"))
        await until(lambda: len(old.requests) == 1)
        first = gateway.live.app
        gateway.write(provider(new))
        assert (await gateway.reload())[0] == 200
        assert gateway.live.app is not first
        assert await gateway.ask("up/m") == 200
        assert len(new.requests) == 1
        assert not running.done()
        gate.set()
        assert await running == 200


async def test_a_provider_that_did_not_change_stays_with_its_connections(tmp_path: Path) -> None:
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream)) as gateway:
        assert await gateway.ask("up/m") == 200
        gateway.write(provider(upstream) + "models: {fast: up/m}\n")
        assert (await gateway.reload())[0] == 200
        assert await gateway.ask("fast") == 200
        assert upstream.connections == 1


async def test_a_provider_whose_certificate_was_replaced_is_another_one(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with MockUpstream(GOOD) as upstream:
        text = provider(upstream, more=f", client_cert: {cert}, client_key: {key}, ca_file: {cert}")
        async with serving(tmp_path, text) as gateway:
            first = gateway.live.app.providers["up"]
            assert (await gateway.reload())[0] == 200
            assert gateway.live.app.providers["up"] is first
            certificate(tmp_path)
            assert (await gateway.reload())[0] == 200
            assert gateway.live.app.providers["up"] is not first
            assert await gateway.ask("up/m") == 200


async def test_a_file_that_is_wrong_changes_nothing_and_every_fault_is_told(tmp_path: Path) -> None:
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream)) as gateway:
        before = gateway.live.app
        gateway.write(provider(upstream) + "models: {fast: nowhere/m}\nservr: {}\n")
        status, body = await gateway.reload()
        assert status == 400
        assert "nowhere" in str(body)
        assert "servr" in str(body)
        assert gateway.live.app is before
        assert await gateway.ask("up/m") == 200
        before.log.flush()
        assert b"reload_failed" in gateway.log.getvalue()


async def test_what_can_only_be_set_at_start_is_refused_by_name(tmp_path: Path) -> None:
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream)) as gateway:
        gateway.write(provider(upstream) + "server: {port: 9}\n")
        status, body = await gateway.reload()
        assert status == 400
        assert "server.port" in str(body)
        gateway.write(provider(upstream) + "server: {tls: {cert: a.pem, key: b.pem}}\n")
        status, body = await gateway.reload()
        assert status == 400
        assert "server.tls: a change of this needs a restart" in str(body)


async def test_limits_and_metrics_go_on_counting(tmp_path: Path) -> None:
    more = "telemetry: {prometheus: true}\nauth: {keys: [{id: a, secret: secret-a, admin: true, limits: {rpm: 2}}]}\n"
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream) + more) as gateway:
        gateway.session.headers["Authorization"] = "Bearer secret-a"
        assert await gateway.ask("up/m") == 200
        gateway.write(provider(upstream) + more + "models: {fast: up/m}\n")
        assert (await gateway.reload())[0] == 200
        assert [await gateway.ask("fast"), await gateway.ask("fast")] == [200, 429]
        async with gateway.session.get(gateway.url + "/metrics") as answer:
            told = await answer.text()
        assert 'gen_ai_request_model="up/m"' in told
        assert 'gen_ai_request_model="fast"' in told


async def test_an_id_of_a_key_that_was_made_at_run_time_is_refused_in_run_yaml(tmp_path: Path) -> None:
    def text(*ids: str) -> str:
        keys = ", ".join(f"{{id: {name}, secret: secret-of-{name}, admin: true}}" for name in ids)
        return (
            f"version: 1\nstorage: {{url: 'sqlite:///{tmp_path}/gateway.db'}}\n"
            f"auth: {{hash_secret: pepper-of-the-test, keys: [{keys}]}}\n{provider(upstream)}"
        )

    why = "auth.keys: 'team-b', 'team-c': a key of this id was made at run time, expected an id of its own"
    async with MockUpstream(GOOD) as upstream, serving(tmp_path, provider(upstream)) as gateway:
        root = {"authorization": "Bearer secret-of-root"}
        gateway.path.write_text(text("root"))
        assert (await gateway.reload())[0] == 200
        for name in ("team-c", "team-b"):
            async with gateway.session.post(f"{gateway.url}/admin/keys", json={"id": name}, headers=root) as answer:
                assert answer.status == 201
        async with gateway.session.delete(f"{gateway.url}/admin/keys/team-c", headers=root) as answer:
            assert answer.status == 200  # what was kept and counted for it is still its own
        gateway.path.write_text(text("team-b", "root", "team-c"))
        before = gateway.live.app
        async with gateway.session.post(f"{gateway.url}/admin/reload", headers=root) as answer:
            assert (answer.status, (await answer.json())["error"]["message"]) == (400, why)
        assert gateway.live.app is before
        gateway.path.write_text(text("root", "team-d"))
        async with gateway.session.post(f"{gateway.url}/admin/reload", headers=root) as answer:
            assert answer.status == 200
