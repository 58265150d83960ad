"""Abilities beside generation, each an optional protocol that a provider may satisfy: embed, count, forward, ...

The router treats them like generation: the same names, limits and errors. A caller asks with isinstance. A provider
whose models differ raises UnsupportedParameter for one that lacks the ability; the router then asks the next target.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.canonical.usage import Usage

__all__ = [
    "COHERE_EXTRAS",
    "EXTRAS",
    "GEMINI_EXTRAS",
    "OLLAMA_EXTRAS",
    "AdapterFolder",
    "AdapterHost",
    "AdapterName",
    "Compacted",
    "Compactor",
    "Embedder",
    "ForwardAnswer",
    "ForwardCall",
    "Forwarder",
    "Measure",
    "Measured",
    "ModelHost",
    "ModelLoad",
    "Prober",
    "Reranker",
    "TokenCounter",
    "Tokenizer",
    "extras_of",
    "lacks",
]

EXTRAS = "extras"
"""Among the fields that an ability takes: those of a client of OpenAI's dialects that nobody maps, as they are."""
OLLAMA_EXTRAS = "extras of ollama"
"""The same of a client of Ollama."""
GEMINI_EXTRAS = "extras of gemini"
"""The same of a client of Gemini."""
COHERE_EXTRAS = "extras of cohere"
"""The same of a client of Cohere's embeddings."""
_OF_DIALECTS = {"ollama": OLLAMA_EXTRAS, "gemini": GEMINI_EXTRAS, "cohere": COHERE_EXTRAS}


def extras_of(dialect: str) -> str:
    """The word for the unmapped fields of a client of this dialect."""
    return _OF_DIALECTS.get(dialect.partition(".")[0], EXTRAS)


class ForwardCall(Struct, frozen=True, kw_only=True):
    """A call that passes through unread: `path` below the base URL (with its query), allow-listed headers.

    `body` None: there is none. `length` is its size in bytes, None where that is not known before its end.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: AsyncIterator[bytes] | None = None
    length: int | None = None
    request_id: str | None = None


class ForwardAnswer(Struct, frozen=True, kw_only=True):
    """`body` holds the connection: read it to its end or close it. It raises GatewayError when the upstream breaks."""

    status: int
    headers: Mapping[str, str]
    body: AsyncGenerator[bytes, None]
    request_id: str | None = None


@runtime_checkable
class Embedder(Protocol):
    def embedding_fields(self, model: str) -> frozenset[str]:
        """The optional fields of EmbeddingRequest that it takes; EXTRAS may be among them."""
        ...

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult: ...


@runtime_checkable
class Reranker(Protocol):
    def rerank_fields(self, model: str) -> frozenset[str]:
        """The optional fields of RerankRequest that it takes; EXTRAS may be among them."""
        ...

    async def rerank(self, request: RerankRequest) -> RerankResult: ...


class Compacted(Struct, frozen=True):
    """A long input made short by its upstream: items of the Responses API, raw JSON."""

    items: tuple[bytes, ...]
    usage: Usage | None = None


@runtime_checkable
class Compactor(Protocol):
    async def compact(self, request: Request) -> Compacted:
        """Raises UnsupportedParameter where the upstream turns out to lack it."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    async def count_tokens(self, request: Request) -> Sequence[int]:
        """Prompt tokens of each prompt (one for messages), templates included."""
        ...


@runtime_checkable
class Tokenizer(Protocol):
    async def tokenize(self, request: TokenizeRequest) -> Tokens: ...

    async def detokenize(self, request: DetokenizeRequest) -> str: ...


@runtime_checkable
class Forwarder(Protocol):
    def forwards(self, path: str) -> bool:
        """Whether it has this endpoint (`/audio/speech`), whose path is that below OpenAI's version."""
        ...

    async def forward(self, call: ForwardCall) -> ForwardAnswer:
        """The answer as soon as its head has come. A status of an error is raised as the error that it stands for."""
        ...


@runtime_checkable
class Prober(Protocol):
    async def probe(self) -> None:
        """Asks the upstream something that spends no tokens and is not answered from memory. Raises GatewayError."""
        ...


class AdapterName(Struct, frozen=True):
    """A LoRA adapter of a model, by its name there."""

    model: str
    name: str


class AdapterFolder(Struct, frozen=True):
    """The same, with the folder that it is read from, in the form that peft saves."""

    model: str
    name: str
    folder: str


@runtime_checkable
class AdapterHost(Protocol):
    async def load_adapter(self, adapter: AdapterFolder) -> None:
        """Adds it to its model, loading that first where need be; `model:name` then answers.

        Raises InvalidRequest for a name or a folder that cannot be used, ModelNotFound and NotReady.
        """
        ...

    async def unload_adapter(self, adapter: AdapterName) -> None:
        """Requests that use it go on to their end; new ones are told that it does not exist.

        Raises ModelNotFound and NotReady.
        """
        ...


class ModelLoad(Struct, frozen=True):
    """A model that is wanted in memory, for `keep_alive_s` (see `Request`) after its last request from now on."""

    model: str
    keep_alive_s: float | None = None


@runtime_checkable
class ModelHost(Protocol):
    async def load_model(self, asked: ModelLoad) -> None:
        """Returns once it is in memory. Raises ModelNotFound and NotReady."""
        ...

    async def unload_model(self, model: str) -> None:
        """It leaves memory at the end of the requests that it has, and is loaded again by the next one.

        Raises ModelNotFound.
        """
        ...


class Measure(Struct, frozen=True):
    """A number about the engine of one model: its name in lower case, and whether it only ever grows."""

    model: str
    name: str
    value: float
    grows: bool = False


@runtime_checkable
class Measured(Protocol):
    def measures(self) -> Sequence[Measure]:
        """The engine's numbers of this moment, of every model that is loaded. Does not block."""
        ...


def lacks(model: str, what: str) -> UnsupportedParameter:
    """The error for a model without an ability: `cannot embed`."""
    return UnsupportedParameter.at("model", f"the model '{model}' {what}")
