"""Gemini's embeddings on both sides: what its clients may write, and where AI Studio and Vertex AI want it."""

import json
from typing import Any

import pytest

from adapters.canonical.embedding import CUT_TO_WINDOW, DOCUMENT, QUERY, EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import BadUpstreamResponse, InvalidRequest
from adapters.canonical.messages import Opaque
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.gemini.embeddings.front import BatchEmbedFront, EmbedFront
from adapters.gemini.embeddings.upstream import embedding_path, parse_embeddings, render_embeddings
from adapters.gemini.embeddings.vocabulary import EMBED, PURPOSES

HEAD = AnswerHead("id", 1, "m")
HI = {"parts": [{"text": "hi"}], "role": "user"}
VECTORS = (b"\0\0\0\x3f", b"\0\0\x80\x3f")


def parsed(front: EmbedFront | BatchEmbedFront, body: Any) -> EmbeddingRequest:
    return front.parse(json.dumps(body).encode(), max_depth=20, request_id="r")


@pytest.mark.parametrize(
    "body",
    [
        {"content": HI, "taskType": "RETRIEVAL_DOCUMENT", "title": "t", "outputDimensionality": 2,
         "autoTruncate": True},
        {"content": {"parts": {"text": "hi"}}, "embed_content_config": {
            "task_type": "RETRIEVAL_DOCUMENT", "title": "t", "output_dimensionality": 2, "auto_truncate": True}},
    ],
)  # fmt: skip
def test_settings_may_stand_beside_the_content_or_in_an_object_of_their_own(body: Any) -> None:
    found = parsed(EmbedFront(), body)
    assert (found.inputs, found.purpose, found.titles) == (("hi",), DOCUMENT, ("t",))
    assert (found.dimensions, found.truncate_prompt_tokens, found.cut_is_default) == (2, CUT_TO_WINDOW, False)
    assert found.extras == {}


def test_a_batch_is_one_request_with_its_texts_and_titles_in_order() -> None:
    rows = [
        {"model": "models/x", "content": HI, "taskType": "RETRIEVAL_QUERY"},
        {"content": HI, "taskType": "RETRIEVAL_QUERY", "title": "t"},
    ]
    found = parsed(BatchEmbedFront(), {"requests": rows})
    assert (found.inputs, found.titles, found.purpose) == (("hi", "hi"), (None, "t"), QUERY)
    assert found.cut_is_default


def test_content_that_is_more_than_a_text_stays_as_it_came_and_goes_back_so() -> None:
    content = {"parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}
    found = parsed(EmbedFront(), {"content": content, "later": [1.0, 10**30]})
    assert found.inputs == (Opaque(type="content", raw=json.dumps(content).encode(), origin=EMBED),)
    sent = render_embeddings(found, vertex=False)
    assert json.loads(sent)["content"] == content
    assert b'"later":[1.0, 1000000000000000000000000000000]' in sent


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "requests"),
        ({"requests": [{}]}, "requests[0].content"),
        ({"requests": [{"content": {}}]}, "requests[0].content.parts"),
        ({"requests": [{"content": HI, "taskType": "LATER"}]}, "requests[0].taskType"),
        ({"requests": [{"content": HI}, {"content": HI, "outputDimensionality": 3}]}, "requests[1]"),
    ],
)
def test_what_is_wrong_in_a_batch_is_named(body: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(BatchEmbedFront(), body)
    assert caught.value.param == param


def test_vectors_are_written_in_each_calls_own_form_with_what_was_used() -> None:
    one, both = parsed(EmbedFront(), {"content": HI}), parsed(BatchEmbedFront(), {"requests": [{"content": HI}]})
    usage = {"promptTokenCount": 3, "totalTokenCount": 3}
    result = EmbeddingResult(vectors=VECTORS, usage=Usage(prompt_tokens=3))
    assert json.loads(EmbedFront().render(one, result, HEAD)) == {
        "embedding": {"values": [0.5]}, "usageMetadata": usage,
    }  # fmt: skip
    assert json.loads(BatchEmbedFront().render(both, EmbeddingResult(vectors=VECTORS), HEAD)) == {
        "embeddings": [{"values": [0.5]}, {"values": [1.0]}]
    }


def wanted(model: str, *inputs: str, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(**{"model": model, "dialect": "openai.embeddings", "inputs": inputs, **fields})


def test_each_house_gets_the_settings_where_it_looks_for_them() -> None:
    fields = {"purpose": DOCUMENT, "titles": ("t", None), "dimensions": 2}
    config = {"taskType": "RETRIEVAL_DOCUMENT", "title": "t", "outputDimensionality": 2}
    a, b = {"parts": [{"text": "a"}]}, {"parts": [{"text": "b"}]}
    rest = {name: value for name, value in config.items() if name != "title"}
    asked = wanted("gemini-embedding-001", "a", "b", **fields)
    assert embedding_path(asked, vertex=False) == "/models/gemini-embedding-001:batchEmbedContents"
    named = {"model": "models/gemini-embedding-001"}
    assert json.loads(render_embeddings(asked, vertex=False)) == {
        "requests": [{**named, "content": a, **config}, {**named, "content": b, **rest}]
    }
    uncut = {"autoTruncate": False}
    assert json.loads(render_embeddings(asked, vertex=True)) == {
        "requests": [
            {"content": a, "embedContentConfig": {**config, **uncut}},
            {"content": b, "embedContentConfig": {**rest, **uncut}},
        ]
    }
    old = wanted("text-embedding-005", "a", "b", **fields)
    assert embedding_path(old, vertex=True) == "/models/text-embedding-005:predict"
    assert json.loads(render_embeddings(old, vertex=True)) == {
        "instances": [
            {"content": "a", "task_type": "RETRIEVAL_DOCUMENT", "title": "t"},
            {"content": "b", "task_type": "RETRIEVAL_DOCUMENT"},
        ],
        "parameters": {"outputDimensionality": 2, **uncut},
    }
    assert embedding_path(wanted("gemini-embedding-001", "a"), vertex=True).endswith(":embedContent")


@pytest.mark.parametrize("word", PURPOSES)
def test_every_task_goes_out_as_it_came_in(word: str) -> None:
    found = parsed(EmbedFront(), {"content": HI, "taskType": word})
    assert json.loads(render_embeddings(found, vertex=False))["taskType"] == word


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"embeddings": [{"values": [0.5]}, {"values": [1]}]}, None),
        ({"embeddings": [{"values": [0.5]}, {"values": [1]}], "usageMetadata": {"promptTokenCount": 4}}, 4),
        ({"predictions": [{"embeddings": {"values": [v], "statistics": {"token_count": 2, "truncated": False}}}
                          for v in (0.5, 1)], "metadata": {}}, 4),
    ],
)  # fmt: skip
def test_answers_of_either_house_are_read(answer: Any, tokens: int | None) -> None:
    found = parse_embeddings(wanted("m", "a", "b"), json.dumps(answer).encode())
    assert found.vectors == VECTORS
    assert (None if found.usage is None else found.usage.prompt_tokens) == tokens


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"embedding":{"values":[1]}}', b'{"embeddings":[{"values":[]}]}'])
def test_what_are_no_vectors_for_all_inputs_is_an_error(answer: bytes) -> None:
    with pytest.raises(BadUpstreamResponse):
        parse_embeddings(wanted("m", "a", "b"), answer)


def test_token_ids_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="Gemini takes texts"):
        render_embeddings(wanted("m", (1, 2)), vertex=False)  # type: ignore[arg-type]
