"""Texts of what is asked without an answer in words: all are found, and each is put back at its place."""

import json

import pytest

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.messages import Opaque
from adapters.canonical.rerank import RerankRequest, ScoreRequest
from gateway.guardrails.ability_texts import HasTexts, json_texts, texts_of, with_json_texts, with_texts

PICTURE = Opaque(type="content", raw=b'{"content":[{"type":"text","text":"c"},{"image_url":"d"}]}', origin="cohere")
EMBED = EmbeddingRequest(model="m", dialect="d", inputs=("a", (1, 2), PICTURE, "e"), titles=(None, "f", None, "g"))
RERANK = RerankRequest(model="m", dialect="d", query="a", documents=("b", "c"))
SCORE = ScoreRequest(model="m", dialect="d", queries=("a", "b"), documents=("c", "d"))


@pytest.mark.parametrize(
    ("request_", "texts"),
    [(EMBED, ["a", "c", "e", "f", "g"]), (RERANK, ["a", "b", "c"]), (SCORE, ["a", "b", "c", "d"])],
)
def test_every_text_is_found_and_put_back_at_its_place(request_: HasTexts, texts: list[str]) -> None:
    assert texts_of(request_) == texts
    assert with_texts(request_, texts) == request_
    changed = with_texts(request_, [text.upper() for text in texts])
    assert texts_of(changed) == [text.upper() for text in texts]
    assert with_texts(changed, texts) == request_


def test_bodies_are_read_where_they_hold_texts_and_nowhere_else() -> None:
    body = json.dumps(
        {"model": "m", "input": ["a", {"type": "text", "text": "b"}], "voice": "v", "prompt": "c"}
    ).encode()
    assert json_texts(body) == ["a", "b", "c"]
    assert with_json_texts(body, iter(["a", "b", "c"])) is body
    assert json.loads(with_json_texts(body, iter("xyz"))) == {
        "model": "m",
        "input": ["x", {"type": "text", "text": "y"}],
        "voice": "v",
        "prompt": "z",
    }
