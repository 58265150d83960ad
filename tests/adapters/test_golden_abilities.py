"""Embeddings and ranks of each dialect: what the upstream is asked for a client's body, and what the client gets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from adapters.bedrock import rerank as bedrock_rerank
from adapters.canonical.errors import GatewayError
from adapters.cohere import embeddings as cohere_embeddings
from adapters.cohere.embeddings_front import CohereEmbedFront
from adapters.front import AnswerHead
from adapters.gemini.embeddings import upstream as gemini_embeddings
from adapters.gemini.embeddings.front import PredictFront
from adapters.openai.errors import render_error
from adapters.openai.rerank.front import CohereRerankFront
from tests.adapters.golden_case import GoldenCase, golden_cases

HEAD = AnswerHead("answer-1", 1790000001, "public-name")
AWS_HEADERS = {"x-amzn-bedrock-input-token-count": "42"}


class Exchange(NamedTuple):
    """A front and an upstream for the cases whose names begin so. `model` is that of a path."""

    front: Any
    render: Callable[[Any], bytes]
    parse: Callable[[Any, bytes], Any]
    model: str | None = None


EXCHANGES = {
    "bedrock_rerank": Exchange(
        CohereRerankFront(),
        bedrock_rerank.render_rerank,
        lambda request, body: bedrock_rerank.parse_rerank(request, body, AWS_HEADERS),
    ),
    "cohere_embed": Exchange(
        CohereEmbedFront(), cohere_embeddings.render_embeddings, cohere_embeddings.parse_embeddings
    ),
    "vertex_predict": Exchange(
        PredictFront(),
        lambda request: gemini_embeddings.render_embeddings(request, vertex=True),
        gemini_embeddings.parse_embeddings,
        "text-embedding-005",
    ),
}
CASES = golden_cases("abilities")


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_an_ability_is_asked_and_answered_as_expected(case: GoldenCase, update_golden: bool) -> None:
    exchange = next(one for name, one in EXCHANGES.items() if case.name.startswith(name))
    request = exchange.front.parse(case.request, max_depth=20, request_id="r")
    if exchange.model is not None:
        request = replace(request, model=exchange.model)
    case.check("sent.json", exchange.render(request) + b"\n", update=update_golden)
    assert case.body is not None
    try:
        told = exchange.front.render(request, exchange.parse(request, case.body), HEAD)
    except GatewayError as error:
        told = render_error(error)
    case.check("client.json", told + b"\n", update=update_golden)
