"""The composition root: a configuration becomes providers, routes, the door and the service.

Clock, ids, randomness and the log's output are passed in. Nothing is opened before `start`.
"""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from adapters.canonical.errors import NotReady
from adapters.front import Front
from gateway.cache.exact import ExactCache
from gateway.config import Config, Redactor
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.tools import Fetch, Tools
from gateway.fetching.guarded import GuardedFetcher
from gateway.guardrails.guardrails import Guardrails, build_guardrails
from gateway.keys.key_administration import KeyAdministration
from gateway.routing.attempt import AttemptObservers
from gateway.routing.health import Health
from gateway.routing.names import ModelLists
from gateway.routing.router import Router
from gateway.server.accounting import build_accounts
from gateway.server.admin import AdminTable, admin_routes, reload_table
from gateway.server.admin_keys import AdminKeys
from gateway.server.admin_usage import AdminUsage
from gateway.server.answer_cache import build_cache
from gateway.server.attempt_log import AttemptLog
from gateway.server.body import BodyReader, HeldBytes
from gateway.server.catalogue import Catalogue
from gateway.server.connections import Connections
from gateway.server.cors import Cors
from gateway.server.endpoints import BY_HEADER, BY_START, CHAT, FRONTS, LISTS, OLLAMA, endpoints
from gateway.server.forwarding import Forwarding, forwarded_routes
from gateway.server.inheritance import NOTHING, Inheritance, unchanged_providers
from gateway.server.key_doors import build_door
from gateway.server.log import Log
from gateway.server.observed import Observed, Snapshots
from gateway.server.ollama_routes import ollama_questions
from gateway.server.provider_building import build_providers
from gateway.server.route_table import build_names, routing_rules
from gateway.server.service import Service
from gateway.server.stateful import Stateful
from gateway.telemetry.gauges import engine_gauges, gauge, target_gauges
from gateway.telemetry.names import ACTIVE_REQUESTS, HELD_BODIES
from gateway.telemetry.series import Snapshot
from gateway.tools.answers import ToolAnswers
from gateway.tools.tool_servers import ToolServers
from gateway.usage.accounts import Accounts
from providers.base import Provider

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["App", "Surroundings", "build_app"]

_HEADERS = {"X-Content-Type-Options": "nosniff"}
_HTTPS_HEADERS = {**_HEADERS, "Strict-Transport-Security": "max-age=31536000"}
_CLOSE_S = 1.0
"""What connections get to end after the drain; aiohttp takes 0 for no limit."""
_HELD_BODIES = 8
"""So many of the largest bodies may be in memory at one time."""


def _token() -> str:
    # Ids are names, not secrets. The module seeds itself anew in each process that is forked.
    return f"{random.getrandbits(96):024x}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the gateway takes from the world around it."""

    clock: Callable[[], float] = time.monotonic
    """Seconds of any origin."""
    now: Callable[[], float] = time.time
    """Unix seconds."""
    random: Callable[[], float] = random.random
    """From 0 to 1."""
    token: Callable[[], str] = _token
    """The random part of an id."""
    log: BinaryIO | None = field(default_factory=lambda: sys.stderr.buffer)
    """Where log lines go; None: nowhere."""


class App:
    """The gateway without its sockets. `connections` is the protocol factory for its main ones."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        lists: ModelLists,
        service: Service,
        log: Log,
        *,
        router: Router,
        stateful: Stateful,
        catalogue: Catalogue,
        observed: Observed,
        fetcher: GuardedFetcher,
        tools: ToolServers,
        guardrails: Guardrails | None = None,
        cache: ExactCache | None = None,
        accounts: Accounts | None = None,
        keys: KeyAdministration | None = None,
        admin: Service | None = None,
        config: Config,
        redact: Redactor,
    ) -> None:
        self._config = config
        self.redact = redact
        self._providers = providers
        self._observed = observed
        self._fetcher = fetcher
        self._tools = tools
        self._guardrails = guardrails
        self._cache = cache
        self._stateful = stateful
        self._accounts = accounts
        self._keys = keys
        self._lists = lists
        self._router = router
        self.catalogue = catalogue
        self.log = log
        self.service = service
        self.admin = admin
        """What serves the admin port; None: there is none, and the main one has the admin routes."""
        self.connections = Connections(service)

    @property
    def running(self) -> int:
        """How many requests are being served, in the background as well."""
        return self.service.active + self._stateful.in_background

    def snapshot(self) -> Snapshot | None:
        """What was counted; None: nothing is."""
        return self._observed.metrics.snapshot() if self._observed.metrics is not None else None

    def inheritance(self, config: Config) -> Inheritance:
        """What an app with this configuration may take over."""
        same_fetch = self._config.run.fetch == config.run.fetch
        same_limits = self._config.run.shared is None and config.run.shared is None
        return Inheritance(
            unchanged_providers(self._config, config, self._providers),
            self._fetcher if same_fetch else None,
            self._accounts.limiter if self._accounts is not None and same_limits else None,
            self._observed.metrics,
            self._tools if same_fetch and self._config.run.tools == config.run.tools else None,
        )

    async def start(self, after: "App | None" = None) -> None:
        """Tells the providers to start; what they load, they load in the background. `after`: the app before, whose
        providers have started. Raises ValueError where what is kept contradicts run.yaml."""
        await self._check_keys()
        started = set(after._providers.values()) if after is not None else set()
        for provider in self._providers.values():
            if provider not in started:
                await provider.start()
        await self._stateful.start()
        self._observed.start()
        self.service.started = True

    async def _check_keys(self) -> None:
        if self._keys is None or self._stateful.storage.holds_nothing:
            return
        try:
            await self._keys.check_ids()
        except NotReady as error:  # it may come up later; a key with an id of run.yaml lets nobody in
            self.log.fault(error, place="storage")

    def look_for_providers(self) -> None:
        """Asks each provider behind a public name, in the background, whether it is there, and warns of one that is
        not."""

        def gone(name: str) -> None:
            self.log.write("provider_unreachable", {"provider": name})

        self._router.look_for_providers(gone)

    async def drain(self, seconds: float) -> None:
        """Serves what runs, in the background as well, at most so long, and nothing new."""
        self.service.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        stopped = await self._stateful.drain(seconds)
        # Who reads an answer that was stopped gets to see how it ended.
        await self.service.drain(max(end - loop.time(), _CLOSE_S if stopped else 0.0))

    async def finish(self) -> None:
        """Waits for what runs, in the background as well, as long as it takes."""
        await self._stateful.drain(None)
        await self.service.wait_idle()

    async def aclose(self, unless_used_by: "App | None" = None) -> None:
        """Closes connections and providers, but those of another app. Requests that still run fail."""
        self.connections.pre_shutdown()  # closes the idle ones
        await self.connections.shutdown(_CLOSE_S)
        await self._stateful.stop()
        if self._accounts is not None:
            await self._accounts.aclose()
        await self._stateful.aclose()
        await self._lists.aclose()
        await self._router.aclose()
        used = set(unless_used_by._providers.values()) if unless_used_by is not None else set()
        for provider in self._providers.values():
            if provider not in used:
                await provider.aclose()
        if unless_used_by is None or unless_used_by._fetcher is not self._fetcher:
            await self._fetcher.aclose()
        if unless_used_by is None or unless_used_by._tools is not self._tools:
            await self._tools.aclose()
        for closable in (self._guardrails, self._cache):
            if closable is not None:
                await closable.aclose()
        await self._observed.aclose()
        self.log.flush()


def build_app(
    config: Config,
    *,
    providers: Mapping[str, Provider] | None = None,
    fronts: Mapping[str, Front] = FRONTS,
    around: Surroundings | None = None,
    inherited: Inheritance = NOTHING,
    reload: Callable[[], Awaitable[None]] | None = None,
    snapshots: Snapshots | None = None,
) -> App:
    """The gateway for a configuration; call it inside the event loop that will run it.

    `providers` are those to use in place of the configured ones; `fronts` are the dialects by path; `inherited` is
    what an app before leaves to this one, `reload` what POST /admin/reload does, `snapshots` what other
    processes counted. Raises ValueError on settings that can't work, and ImportError where an extra is missing.
    """
    around = around or Surroundings()
    fetcher = inherited.fetcher or GuardedFetcher(config.run.fetch or Fetch())
    if providers is None:
        providers = build_providers(config, fetcher, inherited.providers)
    redact = Redactor(config.secrets)
    log = Log(around.log, form=config.telemetry.log, now=around.now, redact=redact)
    local = _local_models(config, providers)
    lists = ModelLists(providers, around.clock, local={name for name, _ in local})
    observed = Observed(
        config.telemetry,
        log,
        clock=around.clock,
        now=around.now,
        bits=random.getrandbits,
        redact=redact,
        metrics=inherited.metrics,
    )
    observed.snapshots = snapshots

    async def open_stores() -> "Stores":
        return await stateful.storage.stores()

    accounts = build_accounts(
        config,
        open_stores,
        log,
        clock=around.clock,
        now=around.now,
        token=around.token,
        limiter=inherited.limiter,
    )
    guardrails = build_guardrails(config.run.guardrails)
    cache = build_cache(config, log, around.clock)
    rules = routing_rules(config)
    health = Health(rules.breaker, around.clock)
    names = build_names(config, providers, lists, health, clock=around.clock, random=around.random)
    router = Router(
        names,
        rules,
        around.random,
        clock=around.clock,
        health=health,
        observer=AttemptObservers(*([accounts] if accounts is not None else []), AttemptLog(log), observed.observer),
        fault=log.fault,
        guardrails=guardrails,
        cache=cache,
    )
    max_bytes = int(config.server.max_body_mb * 2**20)
    held = HeldBytes(_HELD_BODIES * max_bytes)
    bodies = BodyReader(max_bytes, held)
    tools = inherited.tools or ToolServers(
        config.run.tools or Tools(),
        config.run.fetch or Fetch(),
        clock=around.clock,
        lost=lambda name, why: log.write("tool_server_lost", {"server": name, "reason": log.outside(why)}),
    )
    answers = ToolAnswers(router, tools, clock=around.clock, redact=redact, total_s=config.reliability.timeouts.total_s)
    stateful = Stateful(config, answers, bodies, log, now=around.now, token=around.token, redact=redact)
    local_first = sorted(providers, key=lambda name: not isinstance(config.providers.get(name), LocalProvider))
    catalogue = Catalogue(
        names,
        lists,
        {name: providers[name] for name in local_first},
        local=local,
        started_at=int(around.now()),
    )
    served = endpoints(
        config,
        fronts,
        names=names,
        router=router,
        catalogue=catalogue,
        bodies=bodies,
        untyped=BodyReader(max_bytes, held, any_type=True),
        kept_chats=stateful.chats,
        now=around.now,
    )
    forwarded = forwarded_routes(
        Forwarding(
            router,
            providers,
            bodies,
            max_depth=config.server.max_depth,
            total_s=config.reliability.timeouts.total_s,
        )
    )
    cors = Cors(config.server.cors) if config.server.cors else None
    door, administration = build_door(config, cors, open_stores, clock=around.clock, now=around.now)
    usage = AdminUsage(open_stores, accounts.ledger if accounts is not None else None, now=around.now)
    admin_table: AdminTable = {
        **reload_table(reload),
        **observed.table,
        **AdminKeys(administration, bodies).table,
        **usage.table,
    }
    has_admin_port = config.server.admin_port is not None
    edge = partial(
        Service,
        catalogue=catalogue,
        door=door,
        log=log,
        held=held,
        clock=around.clock,
        token=around.token,
        redact=redact,
        accounts=accounts,
        cors=cors,
        extra_headers=_HTTPS_HEADERS if config.server.tls is not None else _HEADERS,
    )
    service = edge(
        served,
        observer=observed.observer,
        asked=ollama_questions(OLLAMA, catalogue),
        other={
            **forwarded,
            **stateful.routes,
            **stateful.chat_routes(CHAT, served),
            **({} if has_admin_port else admin_routes(admin_table)),
        },
        lists=LISTS,
        by_header=BY_HEADER,
        by_start=BY_START,
    )
    admin = edge({}, other=admin_routes(admin_table)) if has_admin_port else None
    if observed.metrics is not None:
        observed.metrics.gauges = [
            lambda: [gauge(ACTIVE_REQUESTS, service.active), gauge(HELD_BODIES, held.held)],
            partial(target_gauges, router.health, around.clock),
            partial(engine_gauges, list(providers.values())),
        ]
    return App(
        providers,
        lists,
        service,
        log,
        router=router,
        stateful=stateful,
        catalogue=catalogue,
        observed=observed,
        fetcher=fetcher,
        tools=tools,
        guardrails=guardrails,
        cache=cache,
        accounts=accounts,
        keys=administration,
        admin=admin,
        config=config,
        redact=redact,
    )


def _local_models(config: Config, providers: Mapping[str, Provider]) -> dict[tuple[str, str], bool]:
    """Every model of this machine, by provider and name, and whether it loads at start."""
    return {
        (name, model): row.load == "start"
        for name, entry in config.providers.items()
        if isinstance(entry, LocalProvider) and name in providers
        for model, row in entry.models.items()
    }
