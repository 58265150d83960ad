"""Azure OpenAI over a real socket: both APIs, names of deployments, keys and tokens."""

import json
import time
from functools import partial
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.errors import ContentRefused, UpstreamAuth
from adapters.canonical.result import fold
from providers.remote.openai_compatible import OpenAICompatible
from tests.mock_upstream import Answer
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.calls import collect
from tests.providers.remote.connection import connected_to

pytestmark = pytest.mark.timeout(20)
BODY: dict[str, Any] = {
    "id": "c",
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
}
WHOLE = Answer.json(json.dumps(BODY).encode())
VECTOR = Answer.json(b'{"data":[{"index":0,"embedding":[1.0]}],"model":"m"}')


connected = partial(connected_to, OpenAICompatible, name="az", type="azure")


CLASSIC = {"api_version": "2024-10-21", "deployments": {"gpt-4o": "my dep"}}


async def test_v1_names_the_deployment_in_the_body_and_takes_the_key_in_a_header_of_its_own() -> None:
    async with connected(WHOLE, options={"deployments": {"gpt-4o": "my-dep"}}) as (upstream, provider):
        await collect(provider.stream(replace(request(stream=False), model="gpt-4o")))
        seen = upstream.requests[0]
    assert seen.path == "/v1/chat/completions"
    assert json.loads(seen.body)["model"] == "my-dep"
    assert seen.headers["api-key"] == "secret-key"
    assert "authorization" not in seen.headers


async def test_the_classic_api_names_it_in_the_path_with_a_version() -> None:
    async with connected(WHOLE, VECTOR, Answer.json(b'{"data":[]}'), options=CLASSIC) as (upstream, provider):
        await collect(provider.stream(replace(request(stream=False), model="gpt-4o")))
        await provider.embed(EmbeddingRequest(model="text-embedding-3-small", dialect="openai", inputs=("x",)))
        await provider.models()
        paths = [seen.path for seen in upstream.requests]
    assert paths == [
        "/v1/deployments/my%20dep/chat/completions?api-version=2024-10-21",
        "/v1/deployments/text-embedding-3-small/embeddings?api-version=2024-10-21",
        "/v1/models?api-version=2024-10-21",
    ]
    assert not provider.forwards("/audio/speech")


async def test_capabilities_are_those_of_the_model_behind_a_deployment() -> None:
    async with connected(options={"deployments": {"o3-mini": "x"}}) as (_, provider):
        assert "temperature" not in provider.capabilities("o3-mini").fields
        assert "temperature" in provider.capabilities("x").fields


class Identity:
    """Stands in for what azure-identity finds; `expires_in` seconds from now."""

    asked = 0
    expires_in = 3600
    refuses = False

    def get_token(self, scope: str) -> AccessToken:
        if Identity.refuses:
            raise ClientAuthenticationError("no identity here")
        Identity.asked += 1
        assert scope == "https://cognitiveservices.azure.com/.default"
        return AccessToken(f"token-{Identity.asked}", int(time.time()) + self.expires_in)


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> type[Identity]:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Identity)
    monkeypatch.setattr(Identity, "asked", 0)
    return Identity


@pytest.mark.parametrize(("expires_in", "tokens"), [(3600, ["token-1", "token-1"]), (60, ["token-1", "token-2"])])
async def test_without_a_key_a_token_is_got_and_kept_until_it_ends(
    identity: type[Identity], monkeypatch: pytest.MonkeyPatch, expires_in: int, tokens: list[str]
) -> None:
    monkeypatch.setattr(identity, "expires_in", expires_in)
    async with connected(WHOLE, api_key=None) as (upstream, provider):
        for _ in range(2):
            await collect(provider.stream(request(stream=False)))
        assert [seen.headers["authorization"] for seen in upstream.requests] == [f"Bearer {one}" for one in tokens]


async def test_an_identity_that_gets_no_token_is_the_gateways_own_fault(
    identity: type[Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "refuses", True)
    async with connected(api_key=None) as (_, provider):
        with pytest.raises(UpstreamAuth, match="no token from Entra"):
            await collect(provider.stream(request(stream=False)))


async def test_a_first_chunk_without_choices_and_filter_results_are_no_fault() -> None:
    chunks = [
        {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}, "content_filter_results": {}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    pieces = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    async with connected(Answer.sse([*pieces, b"data: [DONE]\n\n"])) as (_, provider):
        result = fold(await collect(provider.stream(request(stream=True))))
    assert result.choices[0].finish.raw == "stop"


async def test_a_filter_that_takes_the_prompt_is_a_refusal_of_content() -> None:
    error = {"error": {"code": "content_filter", "message": "filtered", "innererror": {"code": "ResponsibleAIPolicy"}}}
    async with connected(Answer.json(json.dumps(error).encode(), 400)) as (_, provider):
        with pytest.raises(ContentRefused):
            await collect(provider.stream(request(stream=False)))
