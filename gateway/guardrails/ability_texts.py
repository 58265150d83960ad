"""Every text of a request that asks for no answer in words: embeddings, ranks, scores, and JSON that passes through
unread. The request with others in place."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

import orjson
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.messages import Opaque
from adapters.canonical.request import Prompt
from adapters.canonical.rerank import RerankRequest, ScoreRequest

__all__ = ["TEXT_FIELDS", "HasTexts", "json_texts", "texts_of", "with_json_texts", "with_texts"]

HasTexts: TypeAlias = EmbeddingRequest | RerankRequest | ScoreRequest
Q = TypeVar("Q", bound=HasTexts)
TEXT_FIELDS = frozenset(("input", "instructions", "prompt", "text"))
"""What bodies hold texts in: speech, images, moderations, transcriptions, and the parts of inputs."""


def texts_of(request: HasTexts) -> list[str]:
    if isinstance(request, RerankRequest):
        return [request.query, *request.documents]
    if isinstance(request, ScoreRequest):
        return [*request.queries, *request.documents]
    found: list[str] = []
    for each in request.inputs:
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Opaque):
            found += json_texts(each.raw)
    return found + [title for title in request.titles or () if title is not None]


def with_texts(request: Q, texts: Sequence[str]) -> Q:
    """`texts` are as many as `texts_of` gave."""
    left = iter(texts)
    if isinstance(request, RerankRequest):
        return replace(request, query=next(left), documents=tuple(left))
    if isinstance(request, ScoreRequest):
        queries = tuple([next(left) for _ in request.queries])
        return replace(request, queries=queries, documents=tuple(left))
    inputs = tuple([_with(each, left) for each in request.inputs])
    titles = request.titles
    if titles is not None:
        titles = tuple([None if title is None else next(left) for title in titles])
    return replace(request, inputs=inputs, titles=titles)


def json_texts(raw: bytes) -> list[str]:
    """The texts in a JSON value, in order."""
    return list(_walk(orjson.loads(raw)))


def with_json_texts(raw: bytes, texts: Iterator[str]) -> bytes:
    """The value with as many others as `json_texts` gave, taken from `texts`; as it was where none differs."""
    value = orjson.loads(raw)
    new = [next(texts) for _ in _walk(value)]
    return raw if new == list(_walk(value)) else orjson.dumps(_replaced(value, iter(new), is_text=False))


def _with(each: Prompt | Opaque, left: Iterator[str]) -> Prompt | Opaque:
    if isinstance(each, str):
        return next(left)
    return replace(each, raw=with_json_texts(each.raw, left)) if isinstance(each, Opaque) else each


def _walk(value: object, *, is_text: bool = False) -> Iterator[str]:
    match value:
        case str() if is_text:
            yield value
        case list():
            for each in value:
                yield from _walk(each, is_text=is_text)
        case dict():
            for name, each in value.items():
                yield from _walk(each, is_text=name in TEXT_FIELDS)


def _replaced(value: object, left: Iterator[str], *, is_text: bool) -> object:
    match value:
        case str() if is_text:
            return next(left)
        case list():
            return [_replaced(each, left, is_text=is_text) for each in value]
        case dict():
            return {name: _replaced(each, left, is_text=name in TEXT_FIELDS) for name, each in value.items()}
        case _:
            return value
