"""The gateway without its sockets: its parts as one, how they begin, serve what runs, and end."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adapters.canonical.errors import NotReady
from gateway.cache.exact import ExactCache
from gateway.config import Config, Redactor
from gateway.fetching.guarded import GuardedFetcher
from gateway.guardrails.guardrails import Guardrails
from gateway.http.server import Connections
from gateway.keys.key_administration import KeyAdministration
from gateway.routing.names import ModelLists
from gateway.routing.router import Router
from gateway.server.catalogue import Catalogue
from gateway.server.inheritance import Inheritance, unchanged_providers
from gateway.server.log import Log
from gateway.server.observed import Observed
from gateway.server.service import Service
from gateway.server.stateful.assembly import Stateful
from gateway.telemetry.series import Snapshot
from gateway.tools.tool_servers import ToolServers
from gateway.usage.accounts import Accounts
from providers.base import Provider

if TYPE_CHECKING:
    from gateway.alerts.alerts import Alerts

__all__ = ["App"]

_CLOSE_S = 1.0
"""What connections get to end after the drain."""
_LAST_S = 3.0
"""What the database, and the collector of telemetry, get to hear what is left."""


@dataclass(kw_only=True, eq=False)
class App:
    """The gateway without its sockets: its parts, and how they begin and end. `connections` is the protocol factory for
    its main ones."""

    config: Config
    redact: Redactor
    log: Log
    providers: Mapping[str, Provider]
    lists: ModelLists
    router: Router
    stateful: Stateful
    catalogue: Catalogue
    observed: Observed
    fetcher: GuardedFetcher
    tools: ToolServers
    guardrails: Guardrails | None
    cache: ExactCache | None
    alerts: "Alerts | None"
    accounts: Accounts | None
    keys: KeyAdministration | None
    service: Service
    admin: Service | None
    """What serves the admin port; None: there is none, and the main one has the admin routes."""
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.connections = Connections(self.service)

    @property
    def running(self) -> int:
        """How many requests are being served, in the background as well."""
        return self.service.active + self.stateful.in_background

    def snapshot(self) -> Snapshot | None:
        """What was counted; None: nothing is."""
        return self.observed.metrics.snapshot() if self.observed.metrics is not None else None

    def inheritance(self, config: Config) -> Inheritance:
        """What an app with this configuration may take over."""
        same_fetch = self.config.run.fetch == config.run.fetch
        same_limits = self.config.run.shared is None and config.run.shared is None
        return Inheritance(
            unchanged_providers(self.config, config, self.providers),
            self.fetcher if same_fetch else None,
            self.accounts.limiter if self.accounts is not None and same_limits else None,
            self.observed.metrics,
            self.tools if same_fetch and self.config.run.tools == config.run.tools else None,
            self.alerts if self.config.run.alerts == config.run.alerts else None,
        )

    async def start(self, after: "App | None" = None) -> None:
        """Tells the providers to start; what they load, they load in the background. `after`: the app before, whose
        providers have started. Raises ValueError where what is kept contradicts run.yaml."""
        await self._check_keys()
        started = set(after.providers.values()) if after is not None else set()
        for provider in self.providers.values():
            if provider not in started:
                await provider.start()
        await self.stateful.start(keeps_usage=self.accounts is not None and self.accounts.ledger is not None)
        self.observed.start()
        self.service.started = True

    async def _check_keys(self) -> None:
        if self.keys is None or self.stateful.storage.holds_nothing:
            return
        with suppress(NotReady):  # the log says so; later, a key with an id of run.yaml lets nobody in
            await self.keys.check_ids()

    def look_for_providers(self) -> None:
        """Asks each provider behind a public name, in the background, whether it is there, and warns of one that is
        not."""

        def gone(name: str) -> None:
            self.log.write("provider_unreachable", {"provider": name})
            if self.alerts is not None:
                self.alerts.targets.gone(name)

        self.router.look_for_providers(gone)

    async def drain(self, seconds: float) -> None:
        """Serves what runs, in the background as well, at most so long, and nothing new."""
        self.service.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        stopped = await self.stateful.drain(seconds)
        # Who reads an answer that was stopped gets to see how it ended.
        await self.service.drain(max(end - loop.time(), _CLOSE_S if stopped else 0.0))

    async def finish(self) -> None:
        """Waits for what runs, in the background as well, as long as it takes."""
        await self.stateful.drain(None)
        await self.service.wait_idle()

    async def aclose(self, unless_used_by: "App | None" = None) -> None:
        """Closes connections and providers, but those of another app. Requests that still run fail."""
        await self.connections.shutdown(_CLOSE_S)
        await self._within("responses", self.stateful.stop())
        if self.accounts is not None:
            await self._within("usage", self.accounts.aclose())
        if self.alerts is not None and (unless_used_by is None or unless_used_by.alerts is not self.alerts):
            await self._within("alerts", self.alerts.aclose())
        await self._within("storage", self.stateful.aclose())
        await self.lists.aclose()
        await self.router.aclose()
        used = set(unless_used_by.providers.values()) if unless_used_by is not None else set()
        for provider in self.providers.values():
            if provider not in used:
                await provider.aclose()
        if unless_used_by is None or unless_used_by.fetcher is not self.fetcher:
            await self.fetcher.aclose()
        if unless_used_by is None or unless_used_by.tools is not self.tools:
            await self.tools.aclose()
        for closable in (self.guardrails, self.cache):
            if closable is not None:
                await closable.aclose()
        await self._within("telemetry", self.observed.aclose())
        self.log.flush()

    async def _within(self, part: str, closing: Awaitable[None]) -> None:
        """Waits for what others have to hear before the end, unless they are silent."""
        try:
            async with asyncio.timeout(_LAST_S):
                await closing
        except TimeoutError:
            self.log.write("not_closed_in_time", {"part": part})
