"""Audio, images, moderations, files and batches through the gateway, with OpenAI's SDK and a mock upstream's socket."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.gateway.server.running import error_of
from tests.gateway.server.two_upstreams import KEY, TwoUpstreams, two_upstreams
from tests.mock_upstream import Answer

pytestmark = pytest.mark.timeout(20)

SOUND = bytes(range(256)) * 4000
TEXT = Answer.json(b'{"text":"hello","usage":{"type":"tokens"}}', headers={"x-request-id": "up-7"})
KEYS = f"auth: {{keys: [{{id: all, secret: {KEY}}}, {{id: few, secret: l1mited-l1mited, models: [voice]}}]}}\n"


def stage(
    *answers: Answer,
    kinds: tuple[str, str] = ("openai", "groq"),
    extra: str = "",
    reliability: str = "{retry: {attempts: 1}}",
) -> AbstractAsyncContextManager[TwoUpstreams]:
    """The alias `voice` goes to the server that gives the answers, then to one that transcribes."""
    return two_upstreams(answers, TEXT, types=kinds, alias="voice", reliability=reliability, extra=extra)


def upload(model: str | None, sound: bytes = SOUND, *, file_first: bool = False) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    if file_first:
        form.add_field("file", io.BytesIO(sound), filename="a.wav", content_type="audio/wav")
    if model is not None:
        form.add_field("model", model)
    form.add_field("language", "no")
    if not file_first:
        form.add_field("file", io.BytesIO(sound), filename="a.wav", content_type="audio/wav")
    return form


async def test_the_sdk_transcribes_a_file_under_the_upstreams_name_of_the_model() -> None:
    async with stage(TEXT) as at:
        found = await at.sdk.audio.transcriptions.create(model="voice", file=("a.wav", SOUND), language="no")
        (seen,) = at.a.requests
    assert found.text == "hello"
    assert (seen.method, seen.path) == ("POST", "/v1/audio/transcriptions")
    assert seen.headers["authorization"] == "Bearer up-key"
    assert SOUND in seen.body
    assert b"\r\n\r\nm\r\n" in seen.body
    assert b"voice" not in seen.body
    assert int(seen.headers["content-length"]) == len(seen.body)
    assert not {"x-stainless-lang", "cookie", "openai-organization"} & seen.headers.keys()


async def test_an_answer_that_comes_packed_all_the_same_is_passed_on_unpacked() -> None:
    long = Answer.json(json.dumps({"text": "hello " * 1000}).encode())
    async with stage(long.gzipped()) as at:
        found = await at.sdk.audio.transcriptions.create(model="voice", file=("a.wav", SOUND))
    assert found.text == "hello " * 1000


async def test_a_file_that_stands_before_the_model_arrives_whole_and_with_its_length() -> None:
    async with stage(TEXT) as at:
        form = upload("voice", SOUND, file_first=True)
        async with at.session.post(f"{at.url}/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200
            assert answer.headers["x-gateway-upstream-model"] == "m"
            assert answer.headers["x-gateway-upstream-request-id"] == "up-7"
            assert answer.headers["x-request-id"] == at.a.requests[0].headers["x-request-id"]
        seen = at.a.requests[0]
    assert SOUND in seen.body
    assert b"\r\n\r\nm\r\n" in seen.body
    assert seen.body.rstrip().endswith(b"--")


async def test_a_body_without_a_length_goes_out_in_chunks() -> None:
    form = upload("voice")()

    async def pieces() -> AsyncIterator[bytes]:
        writer = io.BytesIO()

        class Writer:
            async def write(self, data: bytes) -> None:
                writer.write(data)

        await form.write(Writer())  # type: ignore[arg-type]
        whole = writer.getvalue()
        for at in range(0, len(whole), 100_000):
            yield whole[at : at + 100_000]

    async with stage(TEXT) as at:
        headers = {"content-type": form.headers["content-type"]}
        async with at.session.post(f"{at.url}/v1/audio/translations", data=pieces(), headers=headers) as answer:
            assert answer.status == 200
        assert at.a.requests[0].headers["transfer-encoding"] == "chunked"
        assert SOUND in at.a.requests[0].body


@pytest.mark.parametrize("file_first", [False, True])
async def test_a_provider_that_cannot_be_reached_is_left_while_the_upload_can_still_be_sent(file_first: bool) -> None:
    async with stage(TEXT) as at:
        assert at.a._server is not None
        at.a._server.close()
        async with at.session.post(
            f"{at.url}/v1/audio/transcriptions", data=upload("voice", file_first=file_first)
        ) as answer:
            assert answer.status == 200
            assert answer.headers["x-gateway-provider"] == "b"
        assert b"\r\n\r\nn\r\n" in at.b.requests[0].body


async def test_speech_streams_back_as_it_comes_and_a_client_that_leaves_ends_it_upstream() -> None:
    go = asyncio.Event()
    answer = Answer(headers={"content-type": "audio/mpeg"}, pieces=(b"first", b"second"), gate=go, gate_after=1)
    async with stage(answer) as at:
        async with at.sdk.audio.speech.with_streaming_response.create(
            model="voice", voice="alloy", input="hi"
        ) as speech:
            pieces = speech.iter_bytes()
            assert await anext(pieces) == b"first"
            go.set()
            assert await anext(pieces) == b"second"
            assert speech.headers["content-type"] == "audio/mpeg"
        assert json.loads(at.a.requests[0].body) == {"model": "m", "voice": "alloy", "input": "hi"}
        go.clear()
        async with at.session.post(f"{at.url}/v1/audio/speech", json={"model": "voice", "input": "x"}) as left:
            assert await left.content.readany() == b"first"
            left.close()
        await at.a.idle()


async def test_a_client_that_leaves_in_the_middle_of_its_upload_ends_the_call() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nvoice\r\n--b\r\nX: y\r\n\r\n' + SOUND
        await asyncio.Event().wait()

    async with stage(TEXT) as at:
        headers = {"content-type": "multipart/form-data; boundary=b"}
        call = asyncio.create_task(
            at.session.post(f"{at.url}/v1/audio/transcriptions", data=endless(), headers=headers)
        )
        async with asyncio.timeout(5):
            while not at.a.connections:  # noqa: ASYNC110  # the mock tells of whole requests only
                await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        async with asyncio.timeout(5):
            while at.a._writers:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert not at.a.requests


@pytest.mark.parametrize("how", ["length", "chunks"])
async def test_a_body_beyond_the_limit_is_refused_by_its_length_or_while_it_arrives(how: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nvoice\r\n--b\r\nX: y\r\n\r\n'
        for _ in range(5):
            yield SOUND

    async with stage(TEXT, extra="server: {max_body_mb: 2}\n") as at:
        headers = {"content-type": "multipart/form-data; boundary=b"}
        data: Any = pieces() if how == "chunks" else io.BytesIO(b"".join([piece async for piece in pieces()]))
        async with at.session.post(f"{at.url}/v1/audio/transcriptions", data=data, headers=headers) as answer:
            assert answer.status == 413
            assert (await error_of(answer))["code"] == "body_too_large"
        assert not at.a.requests


@pytest.mark.parametrize(
    ("path", "data", "kind", "status", "word"),
    [
        ("/audio/transcriptions", b"--b--\r\n", "multipart/form-data; boundary=b", 400, "model"),
        ("/audio/transcriptions", b"--b\r\n", "multipart/form-data; boundary=b", 400, "boundary"),
        ("/audio/transcriptions", b"", "multipart/form-data", 400, "boundary"),
        ("/audio/transcriptions", b"x", "audio/wav", 415, "multipart"),
        ("/audio/speech", b"{}", "application/json", 400, "model"),
        ("/audio/speech", b'{"model": 5}', "application/json", 400, "model"),
        ("/audio/speech", b'{"model": "nowhere"}', "application/json", 404, "nowhere"),
        ("/audio/speech", b'{"x":' + b"[" * 500, "application/json", 400, "nested"),
        ("/audio/speech", b'{"model": "a/m", "x": NaN}', "application/json", 400, "JSON"),
        ("/files/..%2Fmodels", b"{}", "application/json", 405, "POST"),
    ],
)
async def test_bad_calls_are_refused_and_reach_no_provider(
    path: str, data: bytes, kind: str, status: int, word: str
) -> None:
    async with stage(TEXT) as at:
        async with at.session.post(f"{at.url}/v1{path}", data=data, headers={"content-type": kind}) as answer:
            assert answer.status == status
            assert word in str((await error_of(answer))["message"])
        assert not [seen for seen in at.a.requests if seen.path != "/v1/models"]


async def test_images_and_moderations_pass_with_the_models_name_replaced_and_nothing_else() -> None:
    image = Answer.json(b'{"created":1,"data":[{"b64_json":"AA=="}]}')
    verdict = Answer.json(b'{"id":"m1","model":"omni","results":[]}')
    async with stage(image, image, verdict, verdict) as at:
        made = await at.sdk.images.generate(model="voice", prompt="a", size="256x256", extra_body={"big": 10**30})
        assert made.data is not None
        assert made.data[0].b64_json == "AA=="
        assert b"1000000000000000000000000000000" in at.a.requests[0].body
        edited = await at.sdk.images.edit(model="voice", image=("x.png", b"\x89PNG"), prompt="b")
        assert edited.created == 1
        assert b"\r\n\r\nm\r\n" in at.a.requests[1].body
        assert (await at.sdk.moderations.create(input="x", model="a/omni")).id == "m1"
        assert json.loads(at.a.requests[2].body)["model"] == "omni"
        await at.sdk.moderations.create(input="x")
        assert json.loads(at.a.requests[3].body) == {"input": "x"}


async def test_files_and_batches_of_the_one_provider_that_has_them() -> None:
    file = (
        b'{"id":"file-1","object":"file","bytes":3,"created_at":1,"filename":"a","purpose":"batch",'
        b'"status":"processed"}'
    )
    batch = (
        b'{"id":"batch_1","object":"batch","endpoint":"/v1/x","input_file_id":"file-1","completion_window":"24h",'
        b'"status":"validating","created_at":1}'
    )
    answers = (
        Answer.json(file),
        Answer.json(b'{"object":"list","data":[' + file + b'],"has_more":false}'),
        Answer(headers={"content-type": "application/octet-stream"}, pieces=(b"a", b"bc")),
        Answer.json(b'{"id":"file-1","object":"file","deleted":true}'),
        Answer.json(batch),
        Answer.json(batch),
        Answer.json(batch),
    )
    async with stage(*answers, kinds=("openai", "deepseek")) as at:
        assert (await at.sdk.files.create(file=("a.jsonl", b"{}\n"), purpose="batch")).id == "file-1"
        assert (await at.sdk.files.list(purpose="batch", limit=2)).data[0].id == "file-1"
        assert (await at.sdk.files.content("file-1")).content == b"abc"
        assert (await at.sdk.files.delete("file-1")).deleted
        made = await at.sdk.batches.create(
            completion_window="24h", endpoint="/v1/chat/completions", input_file_id="file-1"
        )
        await at.sdk.batches.retrieve(made.id)
        await at.sdk.batches.cancel(made.id)
        assert [(seen.method, seen.path) for seen in at.a.requests] == [
            ("POST", "/v1/files"),
            ("GET", "/v1/files?limit=2&purpose=batch"),
            ("GET", "/v1/files/file-1/content"),
            ("DELETE", "/v1/files/file-1"),
            ("POST", "/v1/batches"),
            ("GET", "/v1/batches/batch_1"),
            ("POST", "/v1/batches/batch_1/cancel"),
        ]


async def test_where_no_provider_has_files_the_client_is_told_so() -> None:
    async with stage(TEXT, kinds=("deepseek", "deepseek")) as at, at.session.get(f"{at.url}/v1/files") as answer:
        assert answer.status == 400
        assert (await error_of(answer))["message"] == "no provider of this gateway has /v1/files"


async def test_where_several_providers_have_files_the_client_names_one() -> None:
    listed = Answer.json(b'{"object":"list","data":[]}')
    async with stage(listed) as at:
        async with at.session.get(f"{at.url}/v1/files") as answer:
            assert answer.status == 400
            assert "a, b" in str((await error_of(answer))["message"])
        async with at.session.get(f"{at.url}/v1/files", headers={"x-gateway-provider": "b"}) as answer:
            assert answer.status == 200
        assert at.b.requests[0].path == "/v1/files"
        async with at.session.get(f"{at.url}/v1/files", headers={"x-gateway-provider": "c"}) as answer:
            assert answer.status == 400


@pytest.mark.parametrize(
    "path", ["/files/a%2F..%2Fb", "/files/..", "/files/a/other", "/batches/a%3Fb/cancel", "/files/"]
)
async def test_an_id_is_no_way_to_other_paths(path: str) -> None:
    async with stage(TEXT, kinds=("openai", "deepseek")) as at:
        async with at.session.get(URL(f"{at.url}/v1{path}", encoded=True)) as answer:
            assert answer.status in (400, 404)
        assert not at.a.requests


async def test_a_key_for_some_models_may_use_those_and_nothing_that_names_no_model() -> None:
    async with stage(TEXT, kinds=("openai", "deepseek"), extra=KEYS) as at:
        headers = {"authorization": "Bearer l1mited-l1mited"}
        for path, data, status in (
            ("/audio/speech", {"model": "voice"}, 200),
            ("/audio/speech", {"model": "a/other"}, 403),
            ("/moderations", {"input": "x"}, 403),
        ):
            async with at.session.post(f"{at.url}/v1{path}", json=data, headers=headers) as answer:
                assert answer.status == status
        async with at.session.get(f"{at.url}/v1/files", headers=headers) as answer:
            assert answer.status == 403
        async with at.session.get(f"{at.url}/v1/files") as answer:
            assert answer.status == 401
    assert len(at.a.requests) == 1


async def test_an_endpoint_that_no_target_has_is_a_400_and_one_that_only_the_second_has_goes_there() -> None:
    async with stage(TEXT, kinds=("deepseek", "groq")) as at:
        async with at.session.post(f"{at.url}/v1/audio/speech", json={"model": "voice"}) as answer:
            assert answer.headers["x-gateway-provider"] == "b"
        async with at.session.post(f"{at.url}/v1/images/generations", json={"model": "voice"}) as answer:
            assert answer.status == 400
            assert (await error_of(answer))["param"] == "model"


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (Answer.json(b'{"error":{"message":"bad key up-key"}}', status=401), 502, "upstream_auth"),
        (Answer.json(b'{"error":{"message":"what","code":"invalid_value"}}', status=400), 400, "invalid_value"),
        (Answer(headers={"content-type": "audio/mpeg"}, then="reset"), 502, "stream_truncated"),
    ],
)
async def test_an_upstreams_error_is_the_gateways_own(answer: Answer, status: int, code: str) -> None:
    async with (
        stage(answer, kinds=("openai", "deepseek")) as at,
        at.session.post(f"{at.url}/v1/audio/speech", json={"model": "a/m"}) as found,
    ):
        assert found.status == status
        error = await error_of(found)
        assert error["code"] == code
        assert "up-key" not in str(error)


async def test_an_answer_that_breaks_in_the_middle_breaks_at_the_client_too() -> None:
    broken = Answer(headers={"content-type": "audio/mpeg"}, pieces=(b"first",), then="reset")
    async with stage(broken) as at, at.session.post(f"{at.url}/v1/audio/speech", json={"model": "a/m"}) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_headers_pass_by_a_list_and_the_length_is_kept() -> None:
    headers = {
        "content-type": "audio/mpeg",
        "content-disposition": 'attachment; filename="a.mp3"',
        "set-cookie": "a=b",
        "x-secret": "s",
    }
    sound = Answer(headers=headers, pieces=(b"abc",), framing="length")
    async with (
        stage(sound) as at,
        at.session.post(f"{at.url}/v1/audio/speech", json={"model": "a/m"}, headers={"x-secret": "s"}) as answer,
    ):
        assert await answer.read() == b"abc"
        assert answer.headers["content-length"] == "3"
        assert answer.headers["content-disposition"] == headers["content-disposition"]
        assert not {"set-cookie", "x-secret"} & {name.lower() for name in answer.headers}
        assert "x-secret" not in at.a.requests[0].headers
        assert at.a.requests[0].headers["accept-encoding"] == "identity"


async def test_a_query_takes_no_body_away() -> None:
    async with stage(TEXT) as at:
        async with at.session.post(f"{at.url}/v1/audio/speech?limit=3&key=secret", json={"model": "voice"}) as answer:
            assert answer.status == 200
        assert at.a.requests[0].path == "/v1/audio/speech?limit=3"
        assert json.loads(at.a.requests[0].body) == {"model": "m"}


async def test_an_answer_that_never_ends_is_cut_at_the_whole_requests_limit() -> None:
    endless = Answer(headers={"content-type": "audio/mpeg"}, pieces=(b"first",), then="hang")
    async with stage(endless, reliability="{retry: {attempts: 1}, timeouts: {total_s: 0.3}}") as at:
        async with at.session.post(f"{at.url}/v1/audio/speech", json={"model": "a/m"}) as answer:
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
        await at.a.idle()


async def test_a_small_upload_is_sent_to_the_next_provider_when_the_first_is_overloaded() -> None:
    async with stage(Answer.json(b'{"error":{"message":"busy"}}', status=503)) as at:
        data = (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nvoice\r\n'
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ntiny\r\n--b--\r\n'
        )
        headers = {"content-type": "multipart/form-data; boundary=b"}
        async with at.session.post(f"{at.url}/v1/audio/transcriptions", data=data, headers=headers) as answer:
            assert (answer.status, answer.headers["x-gateway-provider"]) == (200, "b")
        assert b"tiny" in at.a.requests[0].body
        assert b"tiny" in at.b.requests[0].body


async def test_an_upload_of_which_a_part_is_gone_is_not_sent_again() -> None:
    async with stage(Answer.json(b'{"error":{"message":"busy"}}', status=503)) as at:
        async with at.session.post(f"{at.url}/v1/audio/transcriptions", data=upload("voice", SOUND * 4)) as answer:
            assert answer.status == 503
        assert not at.b.requests


async def test_an_upload_that_names_no_model_is_sent_once() -> None:
    refused = Answer.json(b'{"error":{"message":"busy"}}', status=503, headers={"retry-after": "0"})
    async with stage(refused, reliability="{retry: {attempts: 3}}", kinds=("openai", "deepseek")) as at:
        async with at.session.post(f"{at.url}/v1/files", data=upload(None)) as answer:
            assert answer.status == 503
        assert len(at.a.requests) == 1


async def test_what_waits_for_its_model_is_bounded_over_all_uploads() -> None:
    async def waiting() -> AsyncIterator[bytes]:
        yield b"--b\r\nX: y\r\n\r\n" + SOUND[:1_000_000]
        await asyncio.Event().wait()

    headers = {"content-type": "multipart/form-data; boundary=b"}
    async with stage(TEXT, extra="server: {max_body_mb: 1}\n") as at:
        url = f"{at.url}/v1/audio/transcriptions"
        calls = [asyncio.create_task(at.session.post(url, data=waiting(), headers=headers)) for _ in range(10)]
        done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert done.pop().result().status == 503
        assert len(pending) >= 8
        for call in pending:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        async with at.session.post(url, data=upload("voice", b"small")) as answer:
            assert answer.status == 200


async def test_guardrails_look_at_what_is_asked_here_as_well() -> None:
    rule = "guardrails: [{regex: 'secret', replace: 's', on: [input]}, {regex: forbidden, on: [input]}]\n"
    async with stage(TEXT, extra=rule) as at:
        speech = {"model": "voice", "input": "a secret", "voice": "secret"}
        status, _, _ = await at.post("/v1/audio/speech", speech)
        assert status == 200
        assert at.sent() == {"model": "m", "input": "a s", "voice": "secret"}
        status, told, _ = await at.post("/v1/images/generations", {"model": "voice", "prompt": "forbidden"})
        assert (status, told["error"]["code"]) == (400, "guardrail")
        assert len(at.a.requests) == 1


async def test_guardrails_look_at_what_is_embedded_and_ranked() -> None:
    rule = "guardrails: [{regex: 'secret', replace: 's', on: [input]}]\n"
    vectors = Answer.json(b'{"object":"list","data":[{"index":0,"embedding":[0.5]}],"model":"m"}')
    ranks = Answer.json(b'{"results":[{"index":0,"relevance_score":0.5}]}')
    async with stage(vectors, ranks, kinds=("vllm", "groq"), extra=rule) as at:
        assert (await at.post("/v1/embeddings", {"model": "voice", "input": "a secret"}))[0] == 200
        assert at.sent()["input"] in ("a s", ["a s"])
        asked = {"model": "voice", "query": "secret?", "documents": ["a secret"]}
        assert (await at.post("/v1/rerank", asked))[0] == 200
        assert (at.sent()["query"], at.sent()["documents"]) == ("s?", ["a s"])


@pytest.mark.parametrize("file_first", [False, True])
async def test_guardrails_look_at_the_texts_of_an_upload_wherever_they_stand(file_first: bool) -> None:
    rule = "guardrails: [{regex: 'secret', replace: 's', on: [input]}, {regex: forbidden, on: [input]}]\n"
    async with stage(TEXT, TEXT, extra=rule) as at:
        url = f"{at.url}/v1/audio/transcriptions"
        form = upload("voice", b"secret" + SOUND, file_first=file_first)
        form.add_field("prompt", "it is a secret, ")
        form.add_field("prompt", "secretly")
        async with at.session.post(url, data=form) as answer:
            assert answer.status == 200, await answer.text()
        (seen,) = at.a.requests
        assert b"\r\n\r\nit is a s, \r\n" in seen.body
        assert b"\r\n\r\nsly\r\n" in seen.body
        assert b"secret" + SOUND in seen.body
        assert b"\r\n\r\nm\r\n" in seen.body
        form = upload("voice", b"sound", file_first=file_first)
        form.add_field("prompt", "forbidden")
        async with at.session.post(url, data=form) as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (400, "guardrail")
        assert len(at.a.requests) == 1


async def test_an_upload_with_changed_texts_has_its_new_length_and_can_be_sent_once_more() -> None:
    rule = "guardrails: [{regex: 'secret', replace: 's', on: [input]}]\n"
    async with stage(Answer.json(b'{"error":{"message":"busy"}}', status=503), extra=rule) as at:
        await at.sdk.audio.transcriptions.create(model="voice", file=("a.wav", SOUND), prompt="a secret")
        for seen in (at.a.requests[0], at.b.requests[0]):
            assert int(seen.headers["content-length"]) == len(seen.body)
            assert b"\r\n\r\na s\r\n" in seen.body


async def test_a_second_model_in_an_upload_is_refused_also_where_the_first_one_is_gone_already() -> None:
    async with stage(TEXT, kinds=("openai", "deepseek")) as at:
        for size in (10, 4_000_000):
            form = upload("voice", b"x" * size)
            form.add_field("model", "other")
            async with at.session.post(f"{at.url}/v1/audio/transcriptions", data=form) as answer:
                assert answer.status == 400
                assert (await error_of(answer))["param"] == "model"


@pytest.mark.parametrize("query", ["", "?limit=1"])
async def test_guardrails_look_at_transcripts_and_at_what_images_were_made_of(query: str) -> None:
    rule = "guardrails: [{regex: hello, replace: hi, on: [output]}, {regex: forbidden, on: [output]}]\n"
    text = Answer(headers={"Content-Type": "text/plain"}, pieces=(b"he", b"llo"), framing="none")
    image = Answer.json(b'{"created":1,"data":[{"b64_json":"aGVsbG8=","revised_prompt":"hello there"}]}')
    refused = Answer.json(b'{"text":"forbidden"}')
    async with stage(TEXT, text, image, refused, kinds=("openai", "deepseek"), extra=rule) as at:
        url = f"{at.url}/v1/audio/transcriptions{query}"
        async with at.session.post(url, data=upload("voice")) as answer:
            assert await answer.json() == {"text": "hi", "usage": {"type": "tokens"}}
        async with at.session.post(url, data=upload("voice")) as answer:
            assert (await answer.text(), answer.content_type) == ("hi", "text/plain")
        status, told, _ = await at.post(f"/v1/images/generations{query}", {"model": "voice", "prompt": "x"})
        assert (status, told["data"]) == (200, [{"b64_json": "aGVsbG8=", "revised_prompt": "hi there"}])
        async with at.session.post(url, data=upload("voice")) as answer:
            assert (answer.status, (await error_of(answer))["code"]) == (400, "guardrail")


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_an_image_at_an_address_that_is_none_of_the_web_is_not_passed_on(kind: str) -> None:
    bad = Answer.json(b'{"data":[{"url":"javascript:alert(1)"}]}', headers={"content-type": kind})
    good = Answer.json(b'{"data":[{"url":"https://x/a.png"}]}')
    async with stage(bad, good, kinds=("openai", "deepseek")) as at:
        asked = {"model": "voice", "prompt": "x"}
        status, told, _ = await at.post("/v1/images/generations", asked)
        assert (status, told["error"]["code"]) == (502, "bad_upstream_response")
        status, told, _ = await at.post("/v1/images/generations", asked)
        assert (status, told) == (200, {"data": [{"url": "https://x/a.png"}]})
