"""Embeddings, ranks and tokens in OpenAI's words: what the SDK sends is decided, what it gets it can read."""

import json
from array import array
from base64 import b64encode
from typing import get_type_hints

import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.embedding_create_params import EmbeddingCreateParams

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import BadUpstreamResponse, InvalidRequest
from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.openai.embeddings.front import EmbeddingsFront
from adapters.openai.embeddings.upstream import parse_embeddings, render_embeddings
from adapters.openai.rerank.upstream import RERANK_WORDS, TEI_RERANK_WORDS, parse_rerank, render_rerank
from adapters.openai.tokens.front import TokenizeFront

HEAD = AnswerHead("id", 1, "name")
VECTORS = (array("f", [0.1, -2.5]).tobytes(), array("f", [3.0, 1e-9]).tobytes())


def parse(**fields: object) -> EmbeddingRequest:
    return EmbeddingsFront().parse(json.dumps({"model": "m", **fields}).encode(), max_depth=32, request_id="r")


def test_every_field_of_the_sdk_is_mapped() -> None:
    values = {"input": "x", "model": "m", "dimensions": 5, "encoding_format": "float", "user": "u"}
    assert values.keys() == get_type_hints(EmbeddingCreateParams).keys()
    found = parse(**values)
    assert found.extras == {}
    assert (found.inputs, found.dimensions, found.user, found.base64) == (("x",), 5, "u", False)


def test_a_request_comes_out_as_it_went_in_but_for_how_vectors_are_written() -> None:
    body = {"input": ["a", "b"], "dimensions": 5, "user": "u", "truncate_prompt_tokens": -1, "odd": [1.0, 10**30]}
    request = parse(**body, encoding_format="base64")
    assert json.loads(render_embeddings(request, base64=False)) == {"model": "m", **body}
    assert render_embeddings(request, base64=True) == render_embeddings(request, base64=True)
    assert b"1000000000000000000000000000000" in render_embeddings(request, base64=False)


@pytest.mark.parametrize("wanted", ["float", "base64"])
def test_an_answer_is_the_sdks_type(wanted: str) -> None:
    request = parse(input=["a", "b"], encoding_format=wanted)
    result = EmbeddingResult(vectors=VECTORS, usage=Usage(prompt_tokens=4))
    body = EmbeddingsFront().render(request, result, HEAD)
    found = json.loads(body)
    if wanted == "float":
        CreateEmbeddingResponse.model_validate(found, strict=True)
        assert array("f", found["data"][1]["embedding"]).tobytes() == VECTORS[1]
    else:
        assert found["data"][0]["embedding"] == b64encode(VECTORS[0]).decode()
    assert parse_embeddings(request, body) == result


def test_an_answer_without_usage_says_zero_to_the_client() -> None:
    request = parse(input="a")
    found = json.loads(EmbeddingsFront().render(request, EmbeddingResult(vectors=VECTORS[:1]), HEAD))
    assert found["usage"] == {"prompt_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"data": 5}', b'{"data": [{"embedding": {}}]}', b"[" * 5000])
def test_an_answer_that_is_none_is_an_upstream_error(body: bytes) -> None:
    with pytest.raises(BadUpstreamResponse):
        parse_embeddings(parse(input="a"), body)
    with pytest.raises(BadUpstreamResponse):
        parse_rerank(RANK, body)


RANK = RerankRequest(model="m", dialect="d", query="q", documents=("a", "b"), top_n=1, extras={"return_text": b"false"})


def test_a_rank_is_asked_in_each_providers_words() -> None:
    assert json.loads(render_rerank(RANK, RERANK_WORDS)) == {
        "model": "m", "query": "q", "documents": ["a", "b"], "top_n": 1, "return_text": False,
    }  # fmt: skip
    assert json.loads(render_rerank(RANK, TEI_RERANK_WORDS)) == {
        "model": "m", "query": "q", "texts": ["a", "b"], "return_text": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"results": [{"index": 1, "relevance_score": 0.5}], "usage": {"total_tokens": 7}}, 7),
        ({"results": [{"index": 1, "relevance_score": 0.5}], "meta": {"tokens": {"input_tokens": 8}}}, 8),
        ({"results": [{"index": 1, "relevance_score": 0.5}], "meta": {"api_version": {}}}, None),
        ({"data": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 0.1}]}, None),
        ([{"index": 0, "score": 0.1}, {"index": 1, "score": 0.5}], None),
    ],
)
def test_ranks_are_read_in_every_providers_form(body: object, tokens: int | None) -> None:
    found = parse_rerank(RANK, json.dumps(body).encode())
    usage = None if tokens is None else Usage(prompt_tokens=tokens)
    assert found == RerankResult(scores=(RerankScore(1, 0.5),), usage=usage)


@pytest.mark.parametrize(("field", "value"), [("add_generation_prompt", "x"), ("messages", [])])
def test_a_chat_to_be_tokenized_is_checked_like_one_to_be_answered(field: str, value: object) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], field: value}
    with pytest.raises(InvalidRequest) as caught:
        TokenizeFront().parse(json.dumps(body).encode(), max_depth=32, request_id="r")
    assert caught.value.param == field
