"""What a provider is: the protocol, what it declares about itself, and the settings it is built from.

Generation has one door, `stream` (law 18). Other abilities are the optional protocols of `providers.abilities`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from adapters.canonical.events import Event
from adapters.canonical.messages import Part, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.model_memory import ModelMemory
from adapters.canonical.request import Request
from adapters.canonical.tool_kinds import FUNCTION
from providers.fetching import Fetcher

__all__ = [
    "Batch",
    "Capabilities",
    "Limits",
    "ModelEntry",
    "Provider",
    "ProviderSettings",
    "Readiness",
    "ReadinessState",
]

Batch: TypeAlias = list[Event]
"""The events that one read of a socket, or one step of the engine, brought; never empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a request, in seconds; none is infinite. `gap_s`: the longest silence between batches.

    `total_s` is kept by the router, over all tries together. The others are the provider's. `whole_s`: the silence
    before an answer that does not stream.
    """

    connect_s: float = 5.0
    first_token_s: float = 60.0
    gap_s: float = 60.0
    total_s: float = 600.0
    whole_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a target can express. The router compares it with each request before the provider sees it (law 8).

    `fields` are names from `adapters.canonical.request.EXPRESSIBLE_FIELDS`. `forwards` are the client dialects whose
    unmapped fields the target takes as they are. `native_choices`: n and several prompts go in one upstream call;
    without it `providers.choices` asks once for each choice. `output_formats` are kinds of OutputFormat; None: those
    that its dialect spells. `schema_lacks` are the keywords of JSON Schema that a structured answer is not held to,
    with the values that are kept all the same. `strict_tools`: calls can be held to the schemas of their tools.
    `thinks` False: it never thinks before it answers, so that to ask it not to asks for nothing. `always_thinks`: it
    can't be asked not to. `not_while_thinking`: fields that it takes only where it was not asked to think.
    `foreign_parts`: kinds of parts that only the client and the model's own template know, taken as they came.
    `max_output`: tokens of the longest answer that the model can give; None: not known.
    """

    fields: frozenset[str]
    forwards: frozenset[str] = frozenset()
    parts: frozenset[type[Part]] = frozenset((Text, Refusal, ToolCall, ToolResult))
    tool_kinds: frozenset[str] = frozenset((FUNCTION,))
    messages: bool = True
    prompts: bool = False
    native_choices: bool = False
    output_formats: frozenset[str] | None = None
    schema_lacks: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    strict_tools: bool = True
    thinks: bool = True
    always_thinks: bool = False
    not_while_thinking: frozenset[str] = frozenset()
    foreign_parts: frozenset[str] = frozenset()
    max_output: int | None = None


class ReadinessState(Enum):
    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a model can answer now, if need be after it is loaded for its next request. `reason` is one clear line
    where it cannot. `memory`: what a model of this machine takes; None: it is not loaded, or lies elsewhere.
    `on_demand`: it is being loaded for a request, as it should be."""

    state: ReadinessState
    reason: str | None = None
    memory: ModelMemory | None = None
    on_demand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One row of a provider's model list. `created` is Unix seconds, `context` the window in tokens. `inputs` are the
    kinds beside text that the model takes (image, audio), `abilities` words of `adapters.canonical.abilities`,
    `defaults` what the model's own files recommend for sampling; None: the provider does not say."""

    id: str
    created: int | None = None
    owned_by: str | None = None
    context: int | None = None
    inputs: tuple[str, ...] | None = None
    abilities: frozenset[str] | None = None
    defaults: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One entry under `providers:` of run.yaml, resolved. `options` is the part that only this type knows."""

    name: str
    type: str
    base_url: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    """A PEM file with what the server is shown; `client_key`: the file of its key, None: the same."""
    client_key: str | None = None
    max_connections: int = 512
    user_agent: str = "llm-protocol-gateway"
    """What an upstream is told; the gateway adds its version."""
    params: Mapping[str, object] = field(default_factory=dict)
    limits: Limits = Limits()
    options: Mapping[str, object] = field(default_factory=dict)
    fetcher: Fetcher | None = None
    """What gets the files that addresses in requests point to; None: nothing is fetched."""

    def __repr__(self) -> str:
        return f"ProviderSettings(name={self.name!r}, type={self.type!r}, base_url={self.base_url!r})"


@runtime_checkable
class Provider(Protocol):
    """One configured source of models. Every method may be called from several tasks of one event loop at once."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None:
        """Begins what must run in the background (loading models). Returns without waiting for it; never raises for a
        model or an upstream that is not there."""
        ...

    def capabilities(self, model: str) -> Capabilities: ...

    def readiness(self, model: str) -> Readiness: ...

    async def models(self) -> Sequence[ModelEntry]:
        """What can be called, fetched anew or from a short-lived cache. Raises GatewayError when it can't be told."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        """The answer's events. `request.model` is the provider's own name of the model.

        Ends after every choice's ChoiceFinished, or raises a GatewayError. Never retries. Closing the iterator, or
        cancelling the task that waits on it, frees everything and stops the upstream call or the sequence within a
        second. Wrap it in `contextlib.aclosing`. With `request.stream` false a remote provider makes a call that does
        not stream, and yields the same events, a delta a part.
        """
        ...

    async def aclose(self) -> None:
        """Frees connections, threads and memory; running streams fail."""
        ...
