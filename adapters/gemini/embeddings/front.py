"""Embeddings towards clients: embedContent for one content, batchEmbedContents for several, and Vertex AI's predict.

A content of one text is that text; any other is Gemini's own to read.
"""

from typing import Any, NamedTuple

import orjson

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest, EmbeddingResult, numbers
from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import Opaque
from adapters.canonical.request import Prompt
from adapters.field_types import BOOL, COUNT, TEXT
from adapters.front import AnswerHead
from adapters.gemini.embeddings.vocabulary import EMBED, PURPOSES, SPELLINGS
from adapters.gemini.wire_objects import in_camel_case, object_at, take_list, take_object, take_objects
from adapters.json_fields import JsonObject, parse_object

__all__ = ["BatchEmbedFront", "EmbedFront", "PredictFront"]

_CONFIG = "embedContentConfig"
_TASK = "task_type"
_MAX_INPUTS = 2048


class _Settings(NamedTuple):
    """What one request says beside its content and title. `extras` of its config have the config's name before them."""

    purpose: str | None
    dimensions: int | None
    cut: bool | None
    extras: dict[str, bytes]


class EmbedFront:
    """POST /v1beta/models/{model}:embedContent. The path names the model."""

    id_prefix = ""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return SPELLINGS.get(name, name)

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = in_camel_case(parse_object(body, max_depth=max_depth))
        return _request([_one(fields)], request_id)

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        return orjson.dumps({"embedding": {"values": numbers(result.vectors[0])}, **_usage(result)})


class BatchEmbedFront:
    """POST /v1beta/models/{model}:batchEmbedContents. The path names the model; all requests have the same settings."""

    id_prefix = ""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return SPELLINGS.get(name, name)

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = in_camel_case(parse_object(body, max_depth=max_depth))
        rows = take_list(fields, "requests")
        if not rows:
            raise InvalidRequest.at("requests", "expected a request")
        if len(rows) > _MAX_INPUTS:
            raise InvalidRequest.at("requests", f"at most {_MAX_INPUTS} in one call")
        return _request([_one(object_at(raw, path)) for raw, path in rows], request_id)

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        rows = [{"values": numbers(vector)} for vector in result.vectors]
        return orjson.dumps({"embeddings": rows, **_usage(result)})


class PredictFront:
    """POST .../models/{model}:predict, as Vertex AI's text models are asked. The path names the model; all instances
    are for the same purpose."""

    id_prefix = ""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return _TASK if name == "purpose" else SPELLINGS.get(name, name)

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        rows = fields.require_objects("instances")
        if len(rows) > _MAX_INPUTS:
            raise InvalidRequest.at("instances", f"at most {_MAX_INPUTS} in one call")
        parameters = in_camel_case(fields.take_object("parameters") or JsonObject({}, "parameters"))
        dimensions = parameters.take("outputDimensionality", COUNT)
        cut = parameters.take("autoTruncate", BOOL)
        parameters.refuse_rest()
        settings = _Settings(None, dimensions, cut, fields.said())
        return _request([_instance(row, settings) for row in rows], request_id, rows="instances")

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        """Tokens are told of one text alone: of several it is only known what they have together."""
        tokens = None if result.usage is None or len(result.vectors) > 1 else result.usage.prompt_tokens
        told = {} if tokens is None else {"statistics": {"token_count": tokens}}
        rows = [{"embeddings": {"values": numbers(vector), **told}} for vector in result.vectors]
        return orjson.dumps({"predictions": rows})


def _instance(row: JsonObject, settings: _Settings) -> tuple[Prompt | Opaque, str | None, _Settings]:
    content = row.require("content", TEXT)
    purpose, title = _purpose(row, _TASK), row.take("title", TEXT)
    row.refuse_rest()
    return content, title, settings._replace(purpose=purpose)


def _request(
    found: list[tuple[Prompt | Opaque, str | None, _Settings]], request_id: str, *, rows: str = "requests"
) -> EmbeddingRequest:
    settings = found[0][2]
    for i, (_, _, other) in enumerate(found):
        if other != settings:
            raise InvalidRequest.at(f"{rows}[{i}]", f"expected the settings of {rows}[0] beside content and title")
    titles = tuple([title for _, title, _ in found])
    return EmbeddingRequest(
        model="",
        dialect=EMBED,
        inputs=tuple([content for content, _, _ in found]),
        dimensions=settings.dimensions,
        purpose=settings.purpose,
        titles=titles if any(titles) else None,
        truncate_prompt_tokens=CUT_TO_WINDOW if settings.cut else None,
        cut_is_default=settings.cut is None,
        request_id=request_id,
        extras=settings.extras,
    )


def _one(fields: JsonObject) -> tuple[Prompt | Opaque, str | None, _Settings]:
    """The content, its title and the settings, which may stand in an object of their own."""
    fields.take("model", TEXT)  # what the path says counts
    raw = fields.take_raw("content")
    if raw is None:
        raise InvalidRequest.at(fields.at("content"), "this field is required")
    content = _content(raw, fields.at("content"))
    config = take_object(fields, _CONFIG) or JsonObject({}, fields.at(_CONFIG))
    purpose = _purpose(config, "taskType") or _purpose(fields, "taskType")
    title = config.take("title", TEXT) or fields.take("title", TEXT)
    dimensions = config.take("outputDimensionality", COUNT) or fields.take("outputDimensionality", COUNT)
    cut = config.take("autoTruncate", BOOL)
    if cut is None:
        cut = fields.take("autoTruncate", BOOL)
    extras = {**fields.said(), **{f"{_CONFIG}.{name}": value for name, value in config.said().items()}}
    return content, title, _Settings(purpose, dimensions or None, cut, extras)


def _purpose(fields: JsonObject, name: str) -> str | None:
    word = fields.take(name, TEXT)
    if word is None or word == "TASK_TYPE_UNSPECIFIED":
        return None
    purpose = PURPOSES.get(word)
    if purpose is None:
        raise InvalidRequest.at(fields.at(name), f"expected one of {', '.join(PURPOSES)}")
    return purpose


def _content(raw: bytes, path: str) -> Prompt | Opaque:
    content = object_at(raw, path)
    parts = take_objects(content, "parts")
    if not parts:
        raise InvalidRequest.at(f"{path}.parts", "expected a part")
    content.take("role", TEXT)
    if len(parts) == 1 and parts[0].names() == ["text"] and not content.names():
        return parts[0].require("text", TEXT)
    return Opaque(type="content", raw=raw, origin=EMBED)


def _usage(result: EmbeddingResult) -> dict[str, Any]:
    """Nothing where the upstream did not say."""
    tokens = None if result.usage is None else result.usage.prompt_tokens
    return {} if tokens is None else {"usageMetadata": {"promptTokenCount": tokens, "totalTokenCount": tokens}}
