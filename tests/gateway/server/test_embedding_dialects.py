"""Vectors through every client's SDK from every vendor's server: what each is asked, and that nothing is lost."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import ollama
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.gateway.server.one_upstream import one_upstream
from tests.mock_upstream import Answer, MockUpstream

pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),  # the SDK's own
]
VECTORS = [[0.5, -1.0], [1.5, 2.0]]


def said(body: Any) -> Answer:
    return Answer.json(json.dumps(body).encode())


@dataclass(frozen=True)
class Vendor:
    """A kind of provider, what its server answers with, and what it is asked for two texts in two dimensions.

    `query` is what is added, or changed, where the vectors are for queries; None: it can't be told so.
    """

    kind: str
    answer: Answer
    path: str
    sent: Any
    query: Any
    model: str = "m"


def gemini_requests(**more: Any) -> Any:
    common = {"model": "models/m", "outputDimensionality": 2, **more}
    return {"requests": [{**common, "content": {"parts": [{"text": text}]}} for text in "ab"]}


COHERE: dict[str, Any] = {
    "texts": ["a", "b"], "input_type": "search_document", "embedding_types": ["float"], "truncate": "NONE",
    "output_dimension": 2,
}  # fmt: skip
VENDORS = [
    Vendor(
        "openai-compatible",
        said({"data": [{"index": i, "embedding": v} for i, v in enumerate(VECTORS)], "usage": {"prompt_tokens": 3}}),
        "/v1/embeddings",
        {"model": "m", "input": ["a", "b"], "dimensions": 2},
        None,
    ),
    Vendor(
        "gemini",
        said({"embeddings": [{"values": v} for v in VECTORS], "usageMetadata": {"promptTokenCount": 3}}),
        "/v1/models/m:batchEmbedContents",
        gemini_requests(),
        gemini_requests(taskType="RETRIEVAL_QUERY"),
    ),
    Vendor(
        "ollama",
        said({"model": "m", "embeddings": VECTORS, "prompt_eval_count": 3}),
        "/api/embed",
        {"model": "m", "input": ["a", "b"], "truncate": False, "dimensions": 2},
        None,
    ),
    Vendor(
        "cohere",
        said({"embeddings": {"float": VECTORS}, "meta": {"billed_units": {"input_tokens": 3}}}),
        "/v1/embed",
        {"model": "m", **COHERE},
        {"model": "m", **COHERE, "input_type": "search_query"},
    ),
    Vendor(
        "bedrock",
        Answer.json(
            json.dumps({"embeddings": VECTORS}).encode(), headers={"x-amzn-bedrock-input-token-count": "3"}
        ),
        "/v1/model/cohere.embed-v4%3A0/invoke",
        COHERE,
        {**COHERE, "input_type": "search_query"},
        "cohere.embed-v4:0",
    ),
]  # fmt: skip


@dataclass
class Stage:
    """`model` is what clients call the vendor's model."""

    url: str
    upstream: MockUpstream
    model: str


@asynccontextmanager
async def stage(vendor: Vendor, answer: Answer | None = None) -> AsyncIterator[Stage]:
    async with one_upstream(vendor.kind, answer or vendor.answer) as at:
        yield Stage(at.url, at.upstream, f"up/{vendor.model}")


Found = tuple[list[list[float]], int | None]


async def through_openai(at: Stage, **more: Any) -> Found:
    async with openai.AsyncOpenAI(base_url=f"{at.url}/v1", api_key="k", max_retries=0) as sdk:
        found = await sdk.embeddings.create(model=at.model, input=["a", "b"], dimensions=2, extra_body=more)
    return [row.embedding for row in found.data], found.usage.prompt_tokens


@asynccontextmanager
async def google(at: Stage, *, vertex: bool = False) -> AsyncIterator[Any]:
    sdk = genai.Client(vertexai=vertex, api_key="k", http_options=types.HttpOptions(base_url=at.url))
    try:
        yield sdk.aio
    finally:
        await sdk.aio.aclose()
        sdk.close()


async def through_gemini(at: Stage, **more: Any) -> Found:
    async with google(at) as sdk:
        config = types.EmbedContentConfig(output_dimensionality=2, **more)
        found = await sdk.models.embed_content(model=at.model, contents=["a", "b"], config=config)
    tokens = None if found.usage_metadata is None else found.usage_metadata.prompt_token_count
    return [row.values for row in found.embeddings], tokens


async def through_ollama(at: Stage, **more: Any) -> Found:
    sdk = ollama.AsyncClient(at.url)
    try:
        found = await sdk.embed(at.model, ["a", "b"], dimensions=2, **more)
    finally:
        await sdk.close()  # type: ignore[no-untyped-call]
    return [list(row) for row in found.embeddings], found.prompt_eval_count


FRONTS = [through_openai, through_gemini, through_ollama]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.kind)
@pytest.mark.parametrize("ask", FRONTS)
async def test_every_client_gets_every_vendors_vectors(vendor: Vendor, ask: Callable[..., Awaitable[Found]]) -> None:
    async with stage(vendor) as at:
        assert await ask(at) == (VECTORS, 3)
        [seen] = at.upstream.requests
    assert seen.path == vendor.path
    sent = json.loads(seen.body)
    if vendor.kind == "ollama" and ask is through_ollama:
        assert sent.pop("truncate", None) is None  # its own client said nothing, and its server decides
        assert sent == {name: value for name, value in vendor.sent.items() if name != "truncate"}
    else:
        assert sent == vendor.sent


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.kind)
@pytest.mark.parametrize("ask", [through_openai, through_gemini])
async def test_what_the_vectors_are_for_reaches_every_house_that_has_a_word_for_it(
    vendor: Vendor, ask: Callable[..., Awaitable[Found]]
) -> None:
    said_in_gemini = ask is through_gemini
    more = {"task_type": "RETRIEVAL_QUERY"} if said_in_gemini else {"input_type": "query"}
    async with stage(vendor) as at:
        if vendor.query is not None:
            assert (await ask(at, **more))[0] == VECTORS
            assert json.loads(at.upstream.requests[0].body) == vendor.query
        elif vendor.kind == "openai-compatible" and not said_in_gemini:
            await ask(at, **more)
            assert json.loads(at.upstream.requests[0].body)["input_type"] == "query"  # in the client's own word
        else:
            with pytest.raises((errors.ClientError, openai.BadRequestError), match=r"taskType|input_type"):
                await ask(at, **more)
            assert not at.upstream.requests


async def test_a_word_of_openais_clients_that_nobody_knows_is_refused_where_it_can_not_be_passed_on() -> None:
    async with stage(VENDORS[3]) as at:
        with pytest.raises(openai.BadRequestError, match="input_type"):
            await through_openai(at, input_type="later")


async def test_geminis_one_content_and_its_pictures_reach_gemini_alone() -> None:
    picture = types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")
    content = types.Content(role="user", parts=[types.Part(text="a"), picture])
    one = said({"embedding": {"values": [0.5, -1.0]}})
    async with stage(VENDORS[1], one) as at, google(at) as sdk:
        found = await sdk.models.embed_content(model=at.model, contents=content)
        assert found.embeddings[0].values == [0.5, -1.0]
        sent = json.loads(at.upstream.requests[0].body)
        assert sent["content"]["parts"][1]["inline_data"]["data"] == "iVBORw=="  # as the SDK wrote it
    async with stage(VENDORS[2]) as at, google(at) as sdk:
        with pytest.raises(errors.ClientError, match="takes texts alone"):
            await sdk.models.embed_content(model=at.model, contents=content)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.kind)
async def test_a_busy_vendor_is_googles_error_in_googles_form(vendor: Vendor) -> None:
    busy = Answer.json(b'{"error":{"message":"busy","code":503},"message":"busy"}', 503)
    async with stage(vendor, busy) as at:
        with pytest.raises(errors.ServerError) as caught:
            await through_gemini(at)
    assert (caught.value.code, caught.value.status) == (503, "UNAVAILABLE")


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.kind)
async def test_coheres_clients_get_every_vendors_vectors_and_hear_where_their_purpose_has_no_word(
    vendor: Vendor,
) -> None:
    body = {"input_type": "search_query", "texts": ["a", "b"], "output_dimension": 2}
    async with stage(vendor) as at, aiohttp.ClientSession() as session:
        async with session.post(f"{at.url}/v2/embed", json={"model": at.model, **body}) as answer:
            found = await answer.json()
            assert answer.status == 200, found
            assert answer.headers.get("x-gateway-dropped-params") == (None if vendor.query else "input_type")
        sent = json.loads(at.upstream.requests[0].body)
    assert found["embeddings"] == {"float": VECTORS}
    assert found["texts"] == ["a", "b"]
    assert found["meta"]["billed_units"] == {"input_tokens": 3}
    expected = vendor.query or vendor.sent
    if vendor.kind == "cohere":  # which decides itself, as for its own clients
        expected = {name: value for name, value in expected.items() if name != "truncate"}
    assert sent == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_type": None}, "input_type"),
        ({"input_type": "later"}, "input_type"),
        ({"texts": None}, "texts"),
        ({"texts": []}, "texts"),
        ({"images": ["data:image/png;base64,AA=="]}, "images"),
        ({"texts": None, "inputs": [{"content": "a"}]}, "inputs[0].content"),
        ({"embedding_types": ["int8"]}, "embedding_types"),
        ({"embedding_types": ["float", "base64"]}, "embedding_types"),
        ({"truncate": "START"}, "truncate"),
        ({"truncate": "NONE", "max_tokens": 3}, "max_tokens"),
        ({"output_dimension": 0}, "output_dimension"),
    ],
)
async def test_what_cohere_has_and_vectors_here_have_not_is_refused_by_name(fields: Any, param: str) -> None:
    async with stage(VENDORS[3]) as at, aiohttp.ClientSession() as session:
        body = {"model": at.model, "input_type": "search_query", "texts": ["a", "b"], **fields}
        async with session.post(f"{at.url}/v2/embed", json=body) as answer:
            assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)
        assert not at.upstream.requests


async def test_coheres_pictures_reach_cohere_alone() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    one = said({"embeddings": {"float": [[0.5, -1.0]]}})
    body = {"input_type": "search_document", "inputs": [{"content": [{"type": "text", "text": "a"}, picture]}]}
    async with stage(VENDORS[3], one) as at, aiohttp.ClientSession() as session:
        async with session.post(f"{at.url}/v2/embed", json={"model": at.model, **body}) as answer:
            assert answer.status == 200
        assert json.loads(at.upstream.requests[0].body)["inputs"] == body["inputs"]
    async with (
        stage(VENDORS[2], one) as at,
        aiohttp.ClientSession() as session,
        session.post(f"{at.url}/v2/embed", json={"model": at.model, **body}) as answer,
    ):
        assert (answer.status, (await answer.json())["error"]["param"]) == (400, "input")


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.kind)
async def test_clients_of_vertex_ai_get_every_vendors_vectors(vendor: Vendor) -> None:
    config = types.EmbedContentConfig(output_dimensionality=2)
    async with stage(vendor) as at, google(at, vertex=True) as sdk:
        model = f"publishers/google/models/{at.model}"
        found = await sdk.models.embed_content(model=model, contents=["a", "b"], config=config)
        sent = json.loads(at.upstream.requests[0].body)
    assert [row.values for row in found.embeddings] == VECTORS
    assert sent == vendor.sent


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"instances": []}, "instances"),
        ({"instances": [{"text": "a"}]}, "instances[0].content"),
        ({"instances": [{"content": "a", "task_type": "LATER"}]}, "instances[0].task_type"),
        ({"instances": [{"content": "a", "task_type": "CLUSTERING"}, {"content": "b"}]}, "instances[1]"),
        ({"instances": [{"content": "a"}], "parameters": {"later": 1}}, "parameters.later"),
    ],
)
async def test_instances_of_vertex_ai_that_can_not_be_read_are_refused_by_name(body: Any, path: str) -> None:
    async with (
        stage(VENDORS[0]) as at,
        aiohttp.ClientSession() as session,
        session.post(f"{at.url}/v1/models/{at.model}:predict", json=body) as answer,
    ):
        error = (await answer.json())["error"]
    assert (answer.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["message"].startswith(path)
