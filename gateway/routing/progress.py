"""What is known about a request while it runs: the server reads it for headers and logs, the router writes it."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from adapters.canonical.errors import GatewayError
from adapters.canonical.usage import Usage
from gateway.routing.guard import FinishGuard
from gateway.routing.route import Target

if TYPE_CHECKING:
    from gateway.usage.charge import Charge
    from gateway.usage.units import Units

__all__ = ["Progress"]


class Progress(Struct, eq=False):
    """Settled with the first batch. `task` and what follows it is told by the server."""

    model: str | None = None
    """The name that the client asked for."""
    stream: bool = False
    session_id: str | None = None
    tags: frozenset[str] = frozenset()
    """Those that the client asks for."""

    target: Target | None = None
    dropped: tuple[str, ...] = ()
    """Fields that were left out, as the client spells them."""
    attempts: int = 0
    failures: list[GatewayError] = []
    """Why the targets before this one did not answer."""
    passed_over: list[tuple[Target, str]] = []
    """Targets that were not asked, and why."""
    cache: str | None = None
    """What the response cache said: hit or miss; None: it was not asked."""
    called: float | None = None
    """When the call of the target began that answers; seconds of the router's clock."""
    guard: FinishGuard | None = None
    """Of the try that runs."""
    counted: Usage | None = None
    """What an answer that is no stream reports."""
    units: "Units | None" = None
    """The same of what is paid by something else than tokens; None: it tells nothing of it."""
    upstream_request_id: str | None = None
    """The same: its id at the upstream."""
    task: "asyncio.Task[object] | None" = None
    """Who reads the stream; None: the task that starts it."""
    headers: Mapping[str, str] = {}
    """Of the client; names are found in lower case."""
    key: str | None = None
    """The id of the client's key."""
    key_metadata: Mapping[str, str] = {}
    request_id: str | None = None
    charge: "Charge | None" = None
    """What the request took of its client's limits."""

    @property
    def usage(self) -> Usage | None:
        """What was reported until now."""
        return self.guard.usage if self.guard is not None else self.counted
