"""What a client-facing dialect offers to the server: one object for each endpoint, all with this shape.

The server knows no wire words. It reads a body, asks the front for a Request, and sends what the renderer gives.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from adapters.canonical.abilities import GENERATE
from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.canonical.model_memory import ModelMemory
from adapters.canonical.request import Request
from adapters.canonical.result import Result

__all__ = ["AnswerHead", "Front", "ListedModel", "ModelListForm", "StreamRenderer"]


class AnswerHead(Struct, frozen=True):
    """What the gateway decides about an answer: its id, its time (Unix seconds), the model as the client named it."""

    id: str
    created: int
    model: str


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model as clients may call it. `created` is Unix seconds, `context` the window in tokens.

    `gateway` is what is known of it beside, as JSON values, for dialects whose clients look past what they do not know.
    """

    id: str
    created: int
    owned_by: str
    context: int | None = None
    abilities: frozenset[str] = frozenset((GENERATE,))
    """Words of `adapters.canonical.abilities`."""
    gateway: Mapping[str, object] = {}
    memory: ModelMemory | None = None
    """Where it is loaded, in a list of those that are."""


class ModelListForm(Protocol):
    """How a dialect lists models."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes: ...

    def render_model(self, model: ListedModel) -> bytes: ...


class StreamRenderer(Protocol):
    """Turns one request's events into frames. One write for each `feed`; empty bytes mean nothing to send yet."""

    def feed(self, events: Sequence[Event]) -> bytes: ...

    def finish(self) -> bytes:
        """The frames that end a good stream."""
        ...

    def fail(self, error: GatewayError) -> bytes:
        """The frames that end a stream in an error, in the client's dialect."""
        ...


class Front(Protocol):
    """One endpoint of one dialect."""

    dialect: str
    id_prefix: str
    stream_content_type: str
    keepalive: bytes
    """A frame that clients ignore, sent during long silence."""
    request_id_header: str
    """Where clients look for the id of their request, beside x-request-id."""
    forwarded_headers: tuple[str, ...]
    """Headers of a request that go to an upstream of the same dialect, in lower case."""

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        """The request in a body. Raises InvalidRequest, naming the path."""
        ...

    def renderer(self, request: Request, head: AnswerHead) -> StreamRenderer: ...

    def render_result(self, request: Request, result: Result, head: AnswerHead) -> bytes: ...

    def render_error(self, error: GatewayError) -> bytes: ...

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field name (for error messages and the dropped-parameters header)."""
        ...
