"""Embeddings towards Gemini. AI Studio and Vertex AI spell the same settings at different places; Vertex AI's own text
models are asked by `:predict`."""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest, EmbeddingResult, packed, text_in, texts_of
from adapters.canonical.messages import Opaque
from adapters.canonical.request import Prompt
from adapters.canonical.usage import Usage
from adapters.gemini.embeddings.vocabulary import EMBED, TASKS
from adapters.gemini.model_names import model_address, model_resource
from adapters.raw_json import fragments
from adapters.upstream_json import read_body

__all__ = ["MAX_INPUTS", "embedding_path", "is_predicted", "parse_embeddings", "render_embeddings"]

MAX_INPUTS = 100
"""Of one call; the reference states it for batchEmbedContents."""
_CONFIG = "embedContentConfig"


class _Statistics(Struct):
    token_count: float | None = None
    upper_count: float | None = msgspec.field(default=None, name="tokenCount")

    @property
    def tokens(self) -> float | None:
        return self.token_count if self.token_count is not None else self.upper_count


class _Vector(Struct):
    values: list[float]
    statistics: _Statistics | None = None


class _Prediction(Struct):
    embeddings: _Vector


class _UsageMetadata(Struct, rename="camel"):
    prompt_token_count: int | None = None


class _Body(Struct, rename="camel"):
    embedding: _Vector | None = None
    embeddings: list[_Vector] | None = None
    predictions: list[_Prediction] | None = None
    usage_metadata: _UsageMetadata | None = None


_decode = Decoder(_Body, strict=False).decode


def is_predicted(model: str) -> bool:
    """Whether Vertex AI answers for this model by `:predict`."""
    return "gemini" not in model


def embedding_path(request: EmbeddingRequest, *, vertex: bool) -> str:
    if vertex and is_predicted(request.model):
        verb = "predict"
    else:
        verb = "embedContent" if len(request.inputs) == 1 else "batchEmbedContents"
    return f"{model_address(request.model)}:{verb}"


def render_embeddings(request: EmbeddingRequest, *, vertex: bool) -> bytes:
    """The body for `embedding_path`. Raises InvalidRequest for token ids."""
    if vertex and is_predicted(request.model):
        return orjson.dumps(_predict(request))
    titles: Sequence[str | None] = request.titles or (None,) * len(request.inputs)
    rows = [
        _content_request(request, each, title, vertex=vertex)
        for each, title in zip(request.inputs, titles, strict=True)
    ]
    return orjson.dumps(rows[0] if len(rows) == 1 else {"requests": rows})


def _content_request(
    request: EmbeddingRequest, one: Prompt | Opaque, title: str | None, *, vertex: bool
) -> dict[str, Any]:
    content: Any
    if isinstance(one, Opaque):
        content = orjson.Fragment(one.raw)
    else:
        content = {"parts": [{"text": text_in(one, "Gemini")}]}
    settings = _settings(request, title, vertex=vertex)
    extras = fragments(request.extras) if request.dialect == EMBED else {}
    inside = {name.partition(".")[2]: raw for name, raw in extras.items() if name.startswith(f"{_CONFIG}.")}
    outside = {name: raw for name, raw in extras.items() if "." not in name}
    if not vertex:
        found = {"model": model_resource(request.model), "content": content, **settings, **outside}
        return {**found, _CONFIG: inside} if inside else found
    config = {**settings, **inside}
    return {"content": content, **outside, **({_CONFIG: config} if config else {})}


def _settings(request: EmbeddingRequest, title: str | None, *, vertex: bool) -> dict[str, Any]:
    """`autoTruncate` is Vertex AI's alone, which cuts unless it is told not to."""
    found: dict[str, Any] = {}
    if request.purpose is not None:
        found["taskType"] = TASKS[request.purpose]
    if title is not None:
        found["title"] = title
    if request.dimensions is not None:
        found["outputDimensionality"] = request.dimensions
    if vertex and not request.cut_is_default:
        found["autoTruncate"] = request.truncate_prompt_tokens == CUT_TO_WINDOW
    return found


def _predict(request: EmbeddingRequest) -> dict[str, Any]:
    titles: Sequence[str | None] = request.titles or (None,) * len(request.inputs)
    instances: list[dict[str, Any]] = []
    for text, title in zip(texts_of(request, "Vertex AI"), titles, strict=True):
        instance: dict[str, Any] = {"content": text}
        if request.purpose is not None:
            instance["task_type"] = TASKS[request.purpose]
        if title is not None:
            instance["title"] = title
        instances.append(instance)
    parameters = _settings(request, None, vertex=True)
    parameters.pop("taskType", None)
    return {"instances": instances, "parameters": parameters} if parameters else {"instances": instances}


def parse_embeddings(request: EmbeddingRequest, body: bytes) -> EmbeddingResult:
    """Raises BadUpstreamResponse for a missing vector, or one of another size."""
    found = read_body(_decode, body, "embeddings")
    if found.predictions is not None:
        rows = [prediction.embeddings for prediction in found.predictions]
    elif found.embeddings is not None:
        rows = found.embeddings
    else:
        rows = [] if found.embedding is None else [found.embedding]
    vectors = packed([row.values for row in rows], len(request.inputs))
    return EmbeddingResult(vectors=vectors, usage=_usage(found.usage_metadata, rows))


def _usage(metadata: _UsageMetadata | None, rows: Sequence[_Vector]) -> Usage | None:
    if metadata is not None and metadata.prompt_token_count is not None:
        return Usage(prompt_tokens=metadata.prompt_token_count)
    counts = [row.statistics.tokens for row in rows if row.statistics is not None]
    known = [count for count in counts if count is not None]
    return Usage(prompt_tokens=int(sum(known))) if len(known) == len(rows) else None
