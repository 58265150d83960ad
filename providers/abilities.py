"""Abilities beside generation, each an optional protocol that a provider may satisfy: embed, rerank, count, forward.

The router treats them like generation: the same names, limits and errors. A caller asks with isinstance.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from adapters.canonical.request import Prompt, Request
from adapters.canonical.usage import Usage

__all__ = [
    "Embedder",
    "EmbeddingRequest",
    "EmbeddingResult",
    "ForwardAnswer",
    "ForwardCall",
    "Forwarder",
    "RerankRequest",
    "RerankResult",
    "RerankScore",
    "Reranker",
    "TokenCounter",
]


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """`inputs` are texts or token ids; `dimensions` None leaves the model's own size."""

    model: str
    inputs: tuple[Prompt, ...]
    dimensions: int | None = None
    user: str | None = None
    extras: Mapping[str, bytes] = {}


class EmbeddingResult(Struct, frozen=True, kw_only=True):
    """`vectors` in the order of the inputs, each little-endian float32 bytes."""

    vectors: tuple[bytes, ...]
    usage: Usage | None = None


class RerankRequest(Struct, frozen=True, kw_only=True):
    model: str
    query: str
    documents: tuple[str, ...]
    top_n: int | None = None
    extras: Mapping[str, bytes] = {}


class RerankScore(Struct, frozen=True):
    """`index` is the document's place in the request."""

    index: int
    score: float


class RerankResult(Struct, frozen=True, kw_only=True):
    """Best first."""

    scores: tuple[RerankScore, ...]
    usage: Usage | None = None


class ForwardCall(Struct, frozen=True, kw_only=True):
    """A call that passes through unread: `path` below the base URL, `body` in pieces, allow-listed headers."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]


class ForwardAnswer(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]


@runtime_checkable
class Embedder(Protocol):
    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult: ...


@runtime_checkable
class Reranker(Protocol):
    async def rerank(self, request: RerankRequest) -> RerankResult: ...


@runtime_checkable
class TokenCounter(Protocol):
    async def count_tokens(self, request: Request) -> Sequence[int]:
        """Prompt tokens of each prompt (one for messages), templates included."""
        ...


@runtime_checkable
class Forwarder(Protocol):
    async def forward(self, call: ForwardCall) -> ForwardAnswer: ...
