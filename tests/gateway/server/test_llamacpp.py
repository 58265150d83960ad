"""Clients of llama.cpp's server at the gateway's socket, which name no model."""

import orjson
import pytest

from adapters.canonical.errors import UpstreamOverloaded
from adapters.canonical.events import Started, TextDelta
from providers.base import ModelEntry
from providers.testing.scripted import ScriptedProvider, Step
from tests.gateway.server.running import HELLO, error_of, running

pytestmark = pytest.mark.timeout(30)
ALIASES = "models: {one: fake/m, two: fake/n}\n"
KEYS = "auth: {keys: [{id: k, secret: key-of-k, models: [two]}]}\n"
OF_K = {"Authorization": "Bearer key-of-k"}


@pytest.mark.parametrize(
    ("path", "sent"), [("/completion", {"prompt": "p"}), ("/infill", {"input_prefix": "p", "input_suffix": "s"})]
)
async def test_a_client_that_names_no_model_gets_the_first_one(path: str, sent: dict[str, object]) -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider, extra=ALIASES) as gateway:
        async with gateway.post(sent, path) as answer:
            whole = orjson.loads(await answer.read())
        async with gateway.post({**sent, "stream": True}, path) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            frames = (await answer.read()).decode().split("\n\n")
    assert (whole["content"], whole["model"], whole["stop"]) == ("Hello there", "one", True)
    assert [orjson.loads(frame.removeprefix("data: "))["content"] for frame in frames[:-1]] == ["Hello", " there", ""]
    assert frames[-1] == ""
    assert [request.prompts for request in provider.requests] == [("p",), ("p",)]
    assert provider.requests[0].model == "m"


async def test_a_client_that_names_a_model_gets_that_one() -> None:
    provider = ScriptedProvider("fake", HELLO)
    sent = {"model": "two", "prompt": "p"}
    async with running(provider, extra=ALIASES) as gateway, gateway.post(sent, "/completion") as answer:
        assert orjson.loads(await answer.read())["model"] == "two"
    assert provider.requests[0].model == "n"


async def test_a_key_gets_the_first_model_that_it_may_use() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=ALIASES + KEYS) as gateway:
        async with gateway.post({"prompt": "p"}, "/completion", headers=OF_K) as answer:
            assert orjson.loads(await answer.read())["model"] == "two"
        async with gateway.session.get(gateway.url + "/props", headers=OF_K) as answer:
            assert orjson.loads(await answer.read())["model_alias"] == "two"


async def test_where_no_model_stands_in_the_field_is_required() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        for path, sent in (("/completion", {"prompt": "p"}), ("/tokenize", {"content": "p"})):
            async with gateway.post(sent, path) as answer:
                assert answer.status == 400
                assert (await error_of(answer))["param"] == "model"


async def test_properties_are_those_of_the_model_that_is_asked_for() -> None:
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m"), ModelEntry(id="n", context=512)])
    async with (
        running(provider, extra=ALIASES) as gateway,
        gateway.session.get(gateway.url + "/props?model=two") as answer,
    ):
        told = orjson.loads(await answer.read())
    assert (told["model_alias"], told["default_generation_settings"]) == ("two", {"n_ctx": 512})


async def test_an_error_inside_a_stream_is_its_last_frame() -> None:
    script: list[Step] = [[Started()], [TextDelta(0, 0, "Hel")], UpstreamOverloaded("busy")]
    provider, sent = ScriptedProvider("fake", script), {"prompt": "p", "stream": True}
    async with running(provider, extra=ALIASES) as gateway, gateway.post(sent, "/completion") as answer:
        frames = (await answer.read()).decode().split("\n\n")[:-1]
    assert orjson.loads(frames[0].removeprefix("data: "))["content"] == "Hel"
    assert "error" in orjson.loads(frames[-1].removeprefix("data: "))
