"""What an upstream dialect offers to a remote provider: one object for each endpoint, all with this shape.

The provider does the HTTP and knows no wire words; the dialect does the words and knows no sockets.
"""

from collections.abc import Sequence
from typing import Protocol

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.canonical.request import Request

__all__ = ["StreamParser", "Upstream"]


class StreamParser(Protocol):
    """The events in one streamed answer. Bytes may be cut anywhere (law 2)."""

    def feed(self, data: bytes) -> list[Event]:
        """What became known with these bytes; may be empty. Raises GatewayError on an error object or broken data.

        An error that stands behind events in the same bytes is not raised but kept in `failure`, so that it does not
        depend on the cut whether the events arrive.
        """
        ...

    @property
    def failure(self) -> GatewayError | None:
        """To be raised by the caller once it gave out what `feed` returned."""
        ...

    def close(self) -> Sequence[Event]:
        """The last events, at a clean end of the body. Raises StreamTruncated without a finish marker (law 3)."""
        ...

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish: a broken connection after that is a normal end."""
        ...


class Upstream(Protocol):
    """One endpoint of one upstream dialect."""

    path: str
    """Below the provider's base URL, with a leading slash."""

    def render_request(self, request: Request) -> bytes: ...

    def stream_parser(self, request: Request) -> StreamParser: ...

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        """A non-streamed answer as events, a delta a part. Raises GatewayError on an error object or emptiness."""
        ...

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        """The error in a JSON body with an error status. Headers (Retry-After) are the provider's business."""
        ...
