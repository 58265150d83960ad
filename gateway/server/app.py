"""The composition root: a configuration becomes providers, routes, the door and the service.

Clock, ids, randomness and the log's output are passed in. Nothing is opened before `start`.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from adapters.llamacpp.props import Props
from gateway.config import Config, Redactor
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.tools import Fetch, Tools
from gateway.fetching.guarded import GuardedFetcher
from gateway.guardrails.guardrails import build_guardrails
from gateway.routing.attempt import AttemptObservers
from gateway.routing.health import Health
from gateway.routing.names import ModelLists
from gateway.routing.router import Router
from gateway.server.accounting import build_accounts
from gateway.server.admin.adapters import AdminAdapters
from gateway.server.admin.keys import AdminKeys
from gateway.server.admin.page import AdminPage
from gateway.server.admin.routes import AdminTable, admin_routes, page_routes, reload_table
from gateway.server.admin.targets import AdminTargets
from gateway.server.admin.usage import AdminUsage
from gateway.server.answer_cache import build_cache
from gateway.server.attempt_log import AttemptLog
from gateway.server.body import BodyReader, HeldBytes
from gateway.server.catalogue import Catalogue
from gateway.server.client_addresses import ClientAddresses
from gateway.server.cors import Cors
from gateway.server.endpoints import BY_HEADER, BY_START, CHAT, LISTS, OLLAMA, endpoints
from gateway.server.forwarding.calls import Forwarding, forwarded_routes
from gateway.server.inheritance import NOTHING, Inheritance
from gateway.server.key_doors import build_door
from gateway.server.lifetime import App
from gateway.server.listing import OneModel, model_routes
from gateway.server.log import Log, Output
from gateway.server.means import Means
from gateway.server.observed import Observed, Snapshots
from gateway.server.ollama_routes import ollama_questions
from gateway.server.own_key import OwnKey
from gateway.server.provider_building import build_providers
from gateway.server.route_table import build_names, routing_rules
from gateway.server.routes import Route, Served, of_method
from gateway.server.service import Service
from gateway.server.stateful.assembly import Stateful
from gateway.telemetry.gauges import engine_gauges, gauge, target_gauges
from gateway.telemetry.names import ACTIVE_REQUESTS, HELD_BODIES
from gateway.tools.answers import ToolAnswers
from gateway.tools.tool_servers import ToolServers
from gateway.usage.accounts import Accounts
from providers.base import Provider

if TYPE_CHECKING:
    from gateway.alerts.alerts import Alerts
    from gateway.storage.opening import Stores

__all__ = ["Surroundings", "build_app"]

_HEADERS = {"X-Content-Type-Options": "nosniff"}
_HTTPS_HEADERS = {**_HEADERS, "Strict-Transport-Security": "max-age=31536000"}
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
    log: Output | None = None
    """Where log lines go; None: nowhere."""


def build_app(
    config: Config,
    *,
    providers: Mapping[str, Provider] | None = None,
    around: Surroundings | None = None,
    inherited: Inheritance = NOTHING,
    reload: Callable[[], Awaitable[None]] | None = None,
    snapshots: Snapshots | None = None,
) -> App:
    """The gateway for a configuration; call it inside the event loop that will run it.

    `providers` are those to use in place of the configured ones; `inherited` is what an app before leaves to this one,
    `reload` what POST /admin/reload does, `snapshots` what all processes counted. Raises ValueError on settings that
    can't work, and ImportError where an extra is missing.
    """
    parts = _Parts(config, around or Surroundings(), inherited, providers=providers)
    parts.observed.snapshots = snapshots
    served = parts.endpoints()
    admin = parts.admin_routes(reload)
    if config.server.admin_port is None:
        service, admin_service = parts.service(served, admin), None
    else:
        service, admin_service = parts.service(served, {}), parts.edge(admin)
    parts.watch(service)
    return App(
        config=config,
        redact=parts.redact,
        log=parts.log,
        providers=parts.providers,
        lists=parts.lists,
        router=parts.router,
        stateful=parts.stateful,
        catalogue=parts.catalogue,
        observed=parts.observed,
        fetcher=parts.fetcher,
        tools=parts.tools,
        guardrails=parts.guardrails,
        cache=parts.cache,
        alerts=parts.alerts,
        accounts=parts.accounts,
        keys=parts.keys,
        service=service,
        admin=admin_service,
    )


class _Parts:
    """What an app is made of, in the order in which one needs the other: what answers, what is served, who may ask."""

    def __init__(
        self,
        config: Config,
        around: Surroundings,
        inherited: Inheritance,
        *,
        providers: Mapping[str, Provider] | None,
    ) -> None:
        self.config = config
        self.around = around
        self.redact = Redactor(config.secrets)
        self.log = Log(around.log, form=config.telemetry.log, now=around.now, redact=self.redact)
        self.observed = self._observed(inherited)
        self.fetcher = inherited.fetcher or GuardedFetcher(config.run.fetch or Fetch())
        if providers is None:
            providers = build_providers(config, self.fetcher, inherited.providers)
        self.providers = providers
        self.local = _local_models(config, providers)
        self.lists = ModelLists(providers, around.clock, local={name for name, _ in self.local})
        self.alerts = inherited.alerts or self._alerts()
        self.accounts = self._accounts(inherited)
        self.guardrails = build_guardrails(config.run.guardrails)
        self.cache = build_cache(config, self.log, around.clock)
        self.router = self._router()
        self.tools = inherited.tools or self._tools()
        self.answers = ToolAnswers(
            self.router,
            self.tools,
            clock=around.clock,
            redact=self.redact,
            total_s=config.reliability.timeouts.total_s,
        )
        max_bytes = int(config.server.max_body_mb * 2**20)
        self.held = HeldBytes(_HELD_BODIES * max_bytes)
        self.bodies = BodyReader(max_bytes, self.held)
        self.untyped = BodyReader(max_bytes, self.held, any_type=True)
        self.stateful = Stateful(
            config, self.answers, self.bodies, self.log, now=around.now, token=around.token, redact=self.redact
        )
        self.catalogue = self._catalogue()
        cors = Cors(config.server.cors) if config.server.cors else None
        door, self.keys = build_door(config, cors, self.stores, clock=around.clock, now=around.now)
        self.edge = partial(
            Service,
            catalogue=self.catalogue,
            door=door,
            log=self.log,
            clients=ClientAddresses(config.server.trusted_proxies),
            held=self.held,
            clock=around.clock,
            token=around.token,
            redact=self.redact,
            accounts=self.accounts,
            cors=cors,
            extra_headers=_HTTPS_HEADERS if config.server.tls is not None else _HEADERS,
        )

    async def stores(self) -> "Stores":
        """The open database; for who asks later, since what opens it is built after those."""
        return await self.stateful.storage.stores()

    def endpoints(self) -> dict[str, Served]:
        means = Means(self.router, self.bodies, self.around.now, self.config.server.max_depth, self.catalogue.unnamed)
        return endpoints(self.config, means, self.untyped, catalogue=self.catalogue, kept_chats=self.stateful.chats)

    def admin_routes(self, reload: Callable[[], Awaitable[None]] | None) -> dict[str, Route]:
        ledger = self.accounts.ledger if self.accounts is not None else None
        table: AdminTable = {
            **reload_table(reload),
            **self.observed.table,
            **AdminKeys(self.keys, self.bodies).table,
            **AdminUsage(self.stores, ledger, now=self.around.now).table,
            **AdminAdapters(self.providers, self.local, self.bodies).table,
            **AdminTargets(self.router.health, clock=self.around.clock, redact=self.redact).table,
        }
        page = AdminPage(self.stores, ledger, now=self.around.now)
        return {**admin_routes(table), **page_routes(page.table)}

    def service(self, served: Mapping[str, Served], admin: Mapping[str, Route]) -> Service:
        """The main one: what is served, what passes through, what has state, and `admin`."""
        forwarding = Forwarding(
            self.router,
            self.providers,
            self.bodies,
            max_depth=self.config.server.max_depth,
            total_s=self.config.reliability.timeouts.total_s,
        )
        return self.edge(
            {
                **of_method("POST", served),
                **of_method("GET", ollama_questions(OLLAMA, self.catalogue)),
                **of_method("GET", {"/props": OneModel(Props(), self.catalogue)}),
                **model_routes(LISTS, BY_HEADER, self.catalogue),
                **forwarded_routes(forwarding),
                **self.stateful.routes,
                **OwnKey(self.accounts, now=self.around.now).routes,
                **self.stateful.chat_routes(CHAT, served),
                **admin,
            },
            observer=self.observed.observer,
            by_header=BY_HEADER,
            by_start=BY_START,
            prefix=self.config.server.path_prefix,
        )

    def watch(self, service: Service) -> None:
        """Lets the metrics say how it stands."""
        if self.observed.metrics is not None:
            self.observed.metrics.gauges = [
                lambda: [gauge(ACTIVE_REQUESTS, service.active), gauge(HELD_BODIES, self.held.held)],
                partial(target_gauges, self.router.health, self.around.clock),
                partial(engine_gauges, list(self.providers.values())),
            ]

    def _observed(self, inherited: Inheritance) -> Observed:
        return Observed(
            self.config.telemetry,
            self.log,
            clock=self.around.clock,
            now=self.around.now,
            bits=random.getrandbits,
            redact=self.redact,
            metrics=inherited.metrics,
        )

    def _accounts(self, inherited: Inheritance) -> Accounts | None:
        return build_accounts(
            self.config,
            self.stores,
            self.log,
            clock=self.around.clock,
            now=self.around.now,
            token=self.around.token,
            limiter=inherited.limiter,
            alerts=None if self.alerts is None else self.alerts.budgets,
        )

    def _alerts(self) -> "Alerts | None":
        section = self.config.run.alerts
        if section is None:
            return None
        from gateway.alerts.alerts import Alerts

        return Alerts(section, self.log.write, now=self.around.now)

    def _router(self) -> Router:
        config, around = self.config, self.around
        rules = routing_rules(config)
        health = Health(rules.breaker, around.clock)
        if self.alerts is not None:
            health.opened.append(self.alerts.targets.opened)
        accounts = [self.accounts.attempt_ended] if self.accounts is not None else []  # whose costs the others tell
        observer = self.observed.observer
        return Router(
            build_names(config, self.providers, self.lists, health, clock=around.clock, random=around.random),
            rules,
            around.random,
            clock=around.clock,
            health=health,
            observer=AttemptObservers(
                began=[observer.began], ended=[*accounts, AttemptLog(self.log).attempt_ended, observer.ended]
            ),
            fault=self.log.fault,
            guardrails=self.guardrails,
            cache=self.cache,
        )

    def _tools(self) -> ToolServers:
        def lost(name: str, why: str) -> None:
            self.log.write("tool_server_lost", {"server": name, "reason": self.log.outside(why)})

        run = self.config.run
        return ToolServers(run.tools or Tools(), run.fetch or Fetch(), clock=self.around.clock, lost=lost)

    def _catalogue(self) -> Catalogue:
        entries = self.config.providers
        local_first = sorted(self.providers, key=lambda name: not isinstance(entries.get(name), LocalProvider))
        return Catalogue(
            self.router.names,
            self.lists,
            {name: self.providers[name] for name in local_first},
            local=self.local,
            started_at=int(self.around.now()),
        )


def _local_models(config: Config, providers: Mapping[str, Provider]) -> dict[tuple[str, str], bool]:
    """Every model of this machine, by provider and name, and whether it loads at start."""
    return {
        (name, model): row.load == "start"
        for name, entry in config.providers.items()
        if isinstance(entry, LocalProvider) and name in providers
        for model, row in entry.models.items()
    }
