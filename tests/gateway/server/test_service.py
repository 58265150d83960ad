"""The edge: wrong paths, methods, bodies and strangers get the right error, in OpenAI's form, on every path."""

import asyncio
import gzip
import io
import socket
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest

from adapters.canonical.errors import UpstreamUnreachable
from adapters.canonical.messages import Image
from providers.base import Capabilities, ModelEntry, Readiness, ReadinessState
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, error_of, running, until

KEYS = """\
auth:
  keys:
    - {id: team-a, secret: secret-of-team-a, models: [fast, "fake/*"]}
    - {id: team-b, secret: secret-of-team-b}
"""
SMALL = "server: {max_body_mb: 0.01}\n"
JSON = {"Content-Type": "application/json"}


def fake(**options: object) -> ScriptedProvider:
    return ScriptedProvider("fake", HELLO, **options)  # type: ignore[arg-type]


async def raw(gateway: Running, request: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return int(head.split(b" ")[1]), body


def post_bytes(gateway: Running, data: object, **headers: str) -> "aiohttp.client._RequestContextManager":
    return gateway.session.post(gateway.url + "/v1/chat/completions", data=data, headers={**JSON, **headers})


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/v1/models/", "/v1/chat/completions/"])
async def test_an_unknown_path_is_a_404_with_an_error_body(path: str) -> None:
    async with running(fake()) as gateway, gateway.session.get(gateway.url + path) as answer:
        assert answer.status == 404
        assert (await error_of(answer))["code"] == "unknown_url"
        assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", ", did you mean /v1/chat/completions?"),
        ("/v1/v1/chat/completions", ", did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", ", did you mean /v1/chat/completions?"),
        ("/v1/messages/", ", did you mean /v1/messages?"),
        ("/v1/threads", ""),
        (f"/v1/chat/{'completions/' * 20}", ""),
    ],
)
async def test_a_path_that_is_nearly_right_is_told_what_it_may_have_meant(path: str, hint: str) -> None:
    async with running(fake()) as gateway, gateway.post(chat(), path) as answer:
        assert answer.status == 404
        assert (await error_of(answer))["message"] == f"there is no {path}"[:212] + hint


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/completions", "POST"), ("DELETE", "/v1/models", "GET"), ("POST", "/healthz", "GET")],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_one(method: str, path: str, allowed: str) -> None:
    async with running(fake()) as gateway, gateway.session.request(method, gateway.url + path) as answer:
        assert answer.status == 405
        assert answer.headers["allow"] == allowed
        assert (await error_of(answer))["code"] == "method_not_allowed"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_of_another_type_is_a_415(content_type: str) -> None:
    body, headers = orjson.dumps(chat()), {"Content-Type": content_type}
    async with running(fake()) as gateway, post_bytes(gateway, body, **headers) as answer:
        assert answer.status == 415
        said = (await error_of(answer))["message"]
        assert str(said).startswith("expected the content type application/json, got ")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"])
async def test_json_by_any_of_its_names_is_taken(content_type: str) -> None:
    body, headers = orjson.dumps(chat()), {"Content-Type": content_type}
    async with running(fake()) as gateway, post_bytes(gateway, body, **headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": "fake/m", "messages": "a\\ud800b"}'])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_body_that_is_no_request_is_a_400(body: bytes, path: str) -> None:
    async with (
        running(fake()) as gateway,
        gateway.session.post(gateway.url + path, data=body, headers=JSON) as answer,
    ):
        assert answer.status == 400
        await error_of(answer)


@pytest.mark.parametrize("depth", [200, 100_000])
async def test_deep_nesting_is_a_400_and_the_gateway_lives(depth: int) -> None:
    body = b'{"model": "fake/m", "messages": [], "tools": ' + b"[" * depth + b"]" * depth + b"}"
    async with running(fake()) as gateway:
        async with post_bytes(gateway, body) as answer:
            assert answer.status == 400
            await error_of(answer)
        async with gateway.session.get(gateway.url + "/healthz") as answer:
            assert answer.status == 200


async def test_a_large_body_is_a_413_by_its_declared_length_alone() -> None:
    async with running(fake(), extra=SMALL) as gateway:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        status, body = await raw(gateway, head + b"Content-Length: 99999999\r\n\r\n")
    assert status == 413
    assert orjson.loads(body)["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("encoded", [False, True], ids=["chunked", "gzip"])
async def test_a_large_body_is_a_413_while_it_is_read(encoded: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield gzip.compress(b" " * 2_000_000) if encoded else b" " * 50_000

    headers = {"Content-Encoding": "gzip"} if encoded else {}
    async with running(fake(), extra=SMALL) as gateway, post_bytes(gateway, pieces(), **headers) as answer:
        assert answer.status == 413
        assert "max_body_mb" in str((await error_of(answer))["message"])


async def test_a_body_within_the_limit_may_be_compressed() -> None:
    body = gzip.compress(orjson.dumps(chat()))
    headers = {"Content-Encoding": "gzip"}
    async with running(fake(), extra=SMALL) as gateway, post_bytes(gateway, body, **headers) as answer:
        assert answer.status == 200


async def test_a_body_larger_than_the_read_buffer_is_read_whole() -> None:
    async with running(fake()) as gateway:
        for size in (100, 300_000, 1_000_000):
            body = chat(messages=[{"role": "user", "content": "x" * size}])
            async with gateway.post(body) as answer:
                assert answer.status == 200


async def test_requests_that_come_together_are_answered_in_turn() -> None:
    async with running(fake()) as gateway:
        body = orjson.dumps(chat())
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request * 50)
        for _ in range(50):
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert answer.startswith(b"HTTP/1.1 200")
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()


async def test_a_body_that_is_not_what_its_encoding_says_is_a_400() -> None:
    headers = {"Content-Encoding": "gzip"}
    async with running(fake()) as gateway, post_bytes(gateway, b"not gzip at all", **headers) as answer:
        assert answer.status == 400


@pytest.mark.parametrize("encoding", ["x", "gzip, gzip", "GZIP "])
async def test_an_encoding_that_is_not_unpacked_here_is_a_415(encoding: str) -> None:
    body = gzip.compress(orjson.dumps(chat()))
    headers = {"Content-Encoding": encoding}
    async with running(fake()) as gateway, post_bytes(gateway, body, **headers) as answer:
        if encoding.strip() == "GZIP":
            assert answer.status == 200
        else:
            assert answer.status == 415
            assert "Content-Encoding" in str((await error_of(answer))["message"])


async def test_a_photo_of_several_megabytes_passes_unchanged() -> None:
    url = "data:image/png;base64," + "A" * 3_000_000
    content = [{"type": "image_url", "image_url": {"url": url}}]
    body = io.BytesIO(orjson.dumps(chat(messages=[{"role": "user", "content": content}])))
    seeing = fake(capabilities=Capabilities(fields=frozenset(), parts=frozenset({Image})))
    async with running(seeing) as gateway, post_bytes(gateway, body) as answer:
        assert answer.status == 200
    messages = seeing.requests[0].messages
    assert messages is not None
    (image,) = messages[0].parts
    assert isinstance(image, Image)
    assert image.source.url == url


async def test_bodies_in_flight_are_bounded_together_and_given_back() -> None:
    waiting = ScriptedProvider("fake", [asyncio.Event()])
    async with running(waiting, extra=SMALL) as gateway:
        text = chat(messages=[{"role": "user", "content": "x" * 9_500}])
        held = [
            asyncio.ensure_future(gateway.session.post(gateway.url + "/v1/chat/completions", json=text))
            for _ in range(8)
        ]
        await until(lambda: len(waiting.requests) == 8)
        async with gateway.post(text) as refused:
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            assert (await error_of(refused))["code"] == "overloaded"
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await until(lambda: waiting.open_streams == 0)
        waiting.play(HELLO)
        async with gateway.post(text) as answer:
            assert answer.status == 200


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on() -> None:
    url, body = "/v1/chat/completions", orjson.dumps(chat())
    async with (
        running(fake()) as gateway,
        gateway.session.post(gateway.url + url, data=body, headers=JSON, expect100=True) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize(
    "request_bytes", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"]
)
async def test_what_is_no_http_is_a_400_with_an_error_body(request_bytes: bytes) -> None:
    async with running(fake()) as gateway:
        status, body = await raw(gateway, request_bytes)
    assert status == 400
    assert orjson.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "header", [b"X-Long: " + b"x" * 40_000, b"\r\n".join(b"X-%d: x" % number for number in range(300))]
)
async def test_headers_beyond_the_limits_are_refused(header: bytes) -> None:
    async with running(fake()) as gateway:
        status, _ = await raw(gateway, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
    assert status == 431


@pytest.mark.parametrize("spelled", ["fake/org/model:8b", "fake%2Forg%2Fmodel%3A8b", "org/model:8b", "org%2Fmodel:8b"])
async def test_a_model_with_slashes_is_found_raw_and_encoded(spelled: str) -> None:
    listed = fake(models=[ModelEntry(id="org/model:8b", context=4096)])
    async with running(listed) as gateway:
        request = f"GET /v1/models/{spelled} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        status, body = await raw(gateway, request.encode())
    assert status == 200
    assert orjson.loads(body)["object"] == "model"


async def test_a_listed_model_can_be_called_by_the_name_that_the_list_gives() -> None:
    listed = fake(models=[ModelEntry(id="org/model:8b")])
    async with running(listed, extra="models: {fast: fake/x}\n") as gateway:
        async with gateway.session.get(gateway.url + "/v1/models") as answer:
            names = [row["id"] for row in (await answer.json())["data"]]
        assert names == ["fast", "fake/org/model:8b"]
        async with gateway.post(chat(names[1])) as called:
            assert called.status == 200
    assert listed.requests[0].model == "org/model:8b"


async def test_codex_is_told_that_there_are_no_descriptions_of_models() -> None:
    async with running(fake()) as gateway:
        async with gateway.session.get(gateway.url + "/v1/models") as answer:
            plain = await answer.json()
        async with gateway.session.get(gateway.url + "/v1/models?client_version=0.153.4") as answer:
            assert await answer.json() == {**plain, "models": []}


async def test_a_provider_that_is_down_leaves_the_list_of_the_others() -> None:
    down = ScriptedProvider("down", HELLO, models_error=UpstreamUnreachable("down"))
    up = fake(models=[ModelEntry(id="m")])
    async with running(down, up) as gateway, gateway.session.get(gateway.url + "/v1/models") as answer:
        assert [row["id"] for row in (await answer.json())["data"]] == ["fake/m"]


async def test_an_unknown_model_is_a_404_that_names_it() -> None:
    async with running(fake(models=[ModelEntry(id="private")])) as gateway, gateway.post(chat("nope")) as answer:
        assert answer.status == 404
        error = await error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'nope'" in str(error["message"])
    assert "private" not in str(error["message"])


@pytest.mark.parametrize(
    ("secret", "asked", "told"),
    [
        ("for-all", "fsat", "the model 'fsat' does not exist, or you have no access to it, did you mean 'fast'?"),
        ("for-some", "fsat", "this key may not use the model 'fsat'"),
        ("for-some", "opne", "this key may not use the model 'opne', did you mean 'open'?"),
    ],
)
async def test_a_misspelt_model_is_told_the_nearest_name_that_the_key_may_use(
    secret: str, asked: str, told: str
) -> None:
    extra = (
        "auth: {keys: [{id: a, secret: for-all}, {id: b, secret: for-some, models: [open]}]}\n"
        "models: {fast: fake/x, open: fake/x}\n"
    )
    async with (
        running(fake(), extra=extra) as gateway,
        gateway.post(chat(asked), headers={"authorization": f"Bearer {secret}"}) as answer,
    ):
        assert (await error_of(answer))["message"] == told


@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_health_needs_no_key(path: str) -> None:
    keys = "auth: {keys: [{id: a, secret: secret-a}]}\n"
    async with running(fake(), extra=keys) as gateway:
        async with gateway.session.get(gateway.url + path, headers={"authorization": ""}) as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with gateway.session.get(gateway.url + "/v1/models", headers={"authorization": ""}) as answer:
            assert answer.status == 401


async def test_an_alias_is_shown_like_any_model() -> None:
    async with (
        running(fake(), extra="models: {smart: fake/m}\n") as gateway,
        gateway.session.get(gateway.url + "/v1/models/smart") as answer,
    ):
        found = await answer.json()
    assert (answer.status, found["id"], found["gateway"]["targets"]) == (200, "smart", ["fake/m"])


async def test_readiness_tells_why_an_alias_cannot_answer() -> None:
    loading = Readiness(ReadinessState.LOADING, "fetching the weights")
    async with running(fake(readiness=loading), extra="models: {fast: fake/m}\n") as gateway:
        async with gateway.session.get(gateway.url + "/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"status": "not ready", "reasons": ["fast: fetching the weights"]}
        async with gateway.session.get(gateway.url + "/healthz") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_without_keys_a_web_page_cannot_reach_a_gateway_on_loopback(headers: dict[str, str]) -> None:
    provider = fake()
    async with running(provider) as gateway, gateway.post(chat(), headers=headers) as answer:
        assert answer.status == 403
        await error_of(answer)
    assert provider.requests == []


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "127.9.9.9:1", "[::1]:8080", "LOCALHOST"])
async def test_every_spelling_of_loopback_is_let_in(host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    async with running(fake()) as gateway, gateway.post(chat(), headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer secret-of-team-b"},
        {"Authorization": "bearer secret-of-team-b"},
        {"x-api-key": "secret-of-team-b"},
        {"api-key": "secret-of-team-b", "Host": "gateway.example"},
    ],
)
async def test_a_known_key_is_let_in(headers: dict[str, str]) -> None:
    async with running(fake(), extra=KEYS) as gateway, gateway.post(chat(), headers=headers) as answer:
        assert answer.status == 200
        assert gateway.lines()[0]["key"] == "team-b"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/nothing"])
async def test_without_a_known_key_everything_is_a_401(headers: dict[str, str], path: str) -> None:
    async with running(fake(), extra=KEYS) as gateway:
        async with gateway.session.post(gateway.url + path, json=chat(), headers=headers) as answer:
            assert answer.status == 401
            await error_of(answer)
        async with gateway.session.get(gateway.url + "/healthz") as answer:
            assert answer.status == 200


async def test_a_key_is_held_to_its_models_and_sees_only_those() -> None:
    other = ScriptedProvider("other", HELLO, models=[ModelEntry(id="m")])
    provider = fake(models=[ModelEntry(id="bare")])
    key = {"Authorization": "Bearer secret-of-team-a"}
    extra = KEYS + "models: {fast: other/m, slow: other/m}\n"
    async with running(provider, other, extra=extra) as gateway:
        expected = {"fast": 200, "fake/any": 200, "bare": 200, "slow": 403, "other/m": 403}
        for model, status in expected.items():
            async with gateway.post(chat(model), headers=key) as answer:
                assert (model, answer.status) == (model, status)
        async with gateway.session.get(gateway.url + "/v1/models", headers=key) as answer:
            assert [row["id"] for row in (await answer.json())["data"]] == ["fast", "fake/bare"]


async def test_secrets_in_an_upstreams_words_reach_neither_client_nor_log() -> None:
    leaky = ScriptedProvider("fake", [UpstreamUnreachable("no route with key=secret-of-team-a")])
    key = {"Authorization": "Bearer secret-of-team-b"}
    async with running(leaky, extra=KEYS + "reliability: {retry: {attempts: 1}}\n") as gateway:
        async with gateway.post(chat(), headers=key) as answer:
            message = (await error_of(answer))["message"]
        async with gateway.post(chat("secret-of-team-a"), headers=key) as answer:
            assert answer.status == 404
        async with gateway.session.get(gateway.url + "/v1/secret-of-team-a", headers=key) as answer:
            assert answer.status == 404
            assert b"secret-of-team-a" not in await answer.read()
        assert message == "no route with key=***"
        gateway.lines()
        assert b"secret-of" not in gateway.log.getvalue()


async def test_a_connection_that_sends_no_whole_request_holds_nothing_back() -> None:
    async with running(fake()) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as idle:
            idle.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
            async with gateway.post(chat()) as answer:
                assert answer.status == 200


async def test_a_secret_in_a_clients_own_request_id_is_hidden_too() -> None:
    headers = {"Authorization": "Bearer secret-of-team-b", "X-Request-Id": "id-secret-of-team-a"}
    async with running(fake(), extra=KEYS) as gateway, gateway.post(chat(), headers=headers) as answer:
        assert answer.headers["x-request-id"] == "id-***"
        assert gateway.lines()[0]["request_id"] == "id-***"
