"""One embedding model or cross-encoder of this machine: texts to vectors, pairs of texts to scores.

Owns how texts become its inputs (special tokens, pairs, cutting) and what its refusals mean to a client.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest, EmbeddingResult, prompts_of
from adapters.canonical.errors import ContextOverflow, GatewayError, InvalidRequest
from adapters.canonical.model_memory import ModelMemory
from adapters.canonical.request import Prompt, Request
from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore
from adapters.canonical.usage import Usage
from local_engine import errors as engine_errors
from local_engine.encoding import Encoder, EncoderInput
from providers.abilities import lacks
from providers.local.engine_request import gateway_error
from providers.local.tokenizer import FastTokenizer

__all__ = ["EMBEDDING_FIELDS", "RERANK_FIELDS", "LocalEncoder", "embed", "rerank"]

EMBEDDING_FIELDS = frozenset(("dimensions", "truncate_prompt_tokens", "user", "keep_alive_s"))
RERANK_FIELDS = frozenset(("top_n", "truncate_prompt_tokens", "user"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEncoder:
    """`prompt`: what goes before every text that is embedded. `memory`: see
    `LocalModel`."""

    name: str
    engine: Encoder
    tokenizer: FastTokenizer
    prompt: str = ""
    memory: ModelMemory = field(default_factory=ModelMemory)

    @property
    def scores(self) -> bool:
        """It is a cross-encoder."""
        return self.engine.info.kind == "scoring"


async def embed(encoder: LocalEncoder, request: EmbeddingRequest) -> EmbeddingResult:
    """Raises InvalidRequest, QueueFull, NotReady or InternalError."""
    if encoder.scores:
        raise lacks(encoder.name, "scores pairs of texts and gives no embeddings")
    limit = _limit(encoder, CUT_TO_WINDOW if request.cut_is_default else request.truncate_prompt_tokens)
    inputs = await asyncio.to_thread(_inputs, encoder, prompts_of(request), limit)
    try:
        rows = await encoder.engine.encode(inputs, dimensions=request.dimensions)
    except engine_errors.EngineError as error:
        raise _refusal(error, request, "input") from error
    return EmbeddingResult(vectors=tuple([row.astype("<f4").tobytes() for row in rows]), usage=_usage(inputs))


async def rerank(encoder: LocalEncoder, request: RerankRequest) -> RerankResult:
    """By the scores of a cross-encoder, or by how near the embeddings are (cosine similarity, -1 to 1)."""
    limit = _limit(encoder, request.truncate_prompt_tokens)
    texts = (request.query, *request.documents)
    try:
        if encoder.scores:
            inputs = await asyncio.to_thread(_pairs, encoder, request, limit)
            scores = (await encoder.engine.encode(inputs))[:, 0].astype(np.float64)
        else:
            inputs = await asyncio.to_thread(_inputs, encoder, texts, limit)
            scores = _nearness(await encoder.engine.encode(inputs))
    except engine_errors.EngineError as error:
        raise _refusal(error, request, "documents") from error
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    return RerankResult(
        scores=tuple([RerankScore(int(index), float(scores[index])) for index in best]), usage=_usage(inputs)
    )


def _nearness(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The cosine of each row to the first one. A row's own does not depend on the rows beside it, bit for bit."""
    exact = rows.astype(np.float64)
    exact /= np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-12)
    found: npt.NDArray[np.float64] = np.clip((exact[1:] * exact[0]).sum(axis=1), -1.0, 1.0)
    return found


def _limit(encoder: LocalEncoder, truncate: int | None) -> int | None:
    """Tokens that an input is cut to, None: it is not cut."""
    if truncate is None:
        return None
    return encoder.engine.info.max_tokens if truncate == CUT_TO_WINDOW else truncate


def _inputs(encoder: LocalEncoder, texts: Sequence[Prompt], limit: int | None) -> list[EncoderInput]:
    """Token ids are taken as they are. A text gets the model's prompt before it, and its special tokens around it."""
    backend = encoder.tokenizer.backend
    prompted = [encoder.prompt + text for text in texts if isinstance(text, str)]
    encodings = iter(backend.encode_batch_fast(prompted, add_special_tokens=False))
    special = backend.num_special_tokens_to_add(False)
    inputs = []
    for text in texts:
        if isinstance(text, tuple):
            inputs.append(EncoderInput(text[:limit]))
        else:
            encoding = next(encodings)
            _cut(encoding, limit, special)
            inputs.append(EncoderInput(tuple(backend.post_process(encoding).ids)))
    return inputs


def _pairs(encoder: LocalEncoder, request: RerankRequest, limit: int | None) -> list[EncoderInput]:
    """Query and document, told apart by their types. What does not fit is cut off the document."""
    backend = encoder.tokenizer.backend
    query, *documents = backend.encode_batch_fast([request.query, *request.documents], add_special_tokens=False)
    special = backend.num_special_tokens_to_add(True)
    inputs = []
    for document in documents:
        _cut(document, limit, special + len(query.ids))
        pair = backend.post_process(query, document)
        inputs.append(EncoderInput(tuple(pair.ids), tuple(pair.type_ids)))
    return inputs


def _cut(encoding: Encoding, limit: int | None, beside: int) -> None:
    """Cuts a text so that it fits with `beside` other tokens."""
    if limit is not None and len(encoding.ids) > (room := max(0, limit - beside)):
        encoding.truncate(room)


def _usage(inputs: Sequence[EncoderInput]) -> Usage:
    return Usage(prompt_tokens=sum(len(each.token_ids) for each in inputs))


def _refusal(error: engine_errors.EngineError, request: EmbeddingRequest | RerankRequest, param: str) -> GatewayError:
    """The engine's error as the client is told of it. `param` is what the client calls the texts."""
    match error:
        case engine_errors.ContextOverflow():
            text = f"{param}: a text of {error.prompt_tokens} tokens; the model takes {error.limit}"
            return ContextOverflow(f"{text} (truncate_prompt_tokens: -1 cuts it)", param=param)
        case engine_errors.InvalidInput(param="input"):
            return InvalidRequest.at(param, f"{error.reason}")
    return gateway_error(error, Request(model=request.model, dialect=request.dialect))
