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

from adapters.anthropic.front import MessagesFront
from adapters.front import Front
from adapters.gemini.front import GenerateFront
from adapters.ollama.front import OllamaChatFront, OllamaGenerateFront
from adapters.openai.chat.front import ChatFront
from adapters.openai.completions.front import CompletionsFront
from gateway.cache.exact import ExactCache
from gateway.config import Config, ProviderConfig, Redactor
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.tools import Fetch
from gateway.fetching.guarded import GuardedFetcher
from gateway.guardrails.guardrails import Guardrails, build_guardrails
from gateway.routing.attempt import AttemptObservers
from gateway.routing.counting import TokenCounts
from gateway.routing.health import Health
from gateway.routing.names import ModelLists
from gateway.routing.router import Router
from gateway.server.ability_routes import ability_routes
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
from gateway.server.forwarding import Forwarding, forwarded_routes
from gateway.server.generation import Generation
from gateway.server.inheritance import NOTHING, Inheritance, unchanged_providers
from gateway.server.key_doors import build_door
from gateway.server.log import Log
from gateway.server.observed import Observed, Snapshots
from gateway.server.ollama_routes import OllamaPreloads, ollama_posts, ollama_questions
from gateway.server.route_table import build_names, routing_rules
from gateway.server.service import ListingFront, Served, Service
from gateway.server.stateful import Stateful
from gateway.server.token_count import CountingFront, TokenCount
from gateway.telemetry.gauges import engine_gauges, gauge, target_gauges
from gateway.telemetry.names import ACTIVE_REQUESTS, HELD_BODIES
from gateway.telemetry.series import Snapshot
from gateway.usage.accounts import Accounts
from gateway.version import VERSION
from providers.base import Limits, Provider, ProviderSettings
from providers.fetching import Fetcher
from providers.registry import build as build_provider

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["FRONTS", "App", "Surroundings", "build_app", "build_provider_of", "build_providers"]

_CHAT = "/v1/chat/completions"
_MESSAGES = MessagesFront()
_GEMINI = GenerateFront()
_GEMINI_ARRAY, _GEMINI_SSE = GenerateFront(stream=True), GenerateFront(stream=True, sse=True)
_OLLAMA = OllamaChatFront()
_GEMINI_MODELS = ("/v1beta/models", "/v1/models")
FRONTS: Mapping[str, Front] = {
    _CHAT: ChatFront(),
    "/v1/completions": CompletionsFront(),
    "/v1/messages": _MESSAGES,
    "/api/chat": _OLLAMA,
    "/api/generate": OllamaGenerateFront(),
    **{f"{models}/*:generateContent": _GEMINI for models in _GEMINI_MODELS},
    **{f"{models}/*:streamGenerateContent": _GEMINI_ARRAY for models in _GEMINI_MODELS},
    **{f"{models}/*:streamGenerateContent?alt=sse": _GEMINI_SSE for models in _GEMINI_MODELS},
}
_COUNTS: Mapping[str, CountingFront] = {
    "/v1/messages/count_tokens": _MESSAGES,
    **{f"{models}/*:countTokens": _GEMINI for models in _GEMINI_MODELS},
}
_LISTS: Mapping[str, ListingFront | None] = {"/v1/models": None, "/v1beta/models": _GEMINI}
_BY_HEADER: Mapping[str, ListingFront] = {"anthropic-version": _MESSAGES, "x-goog-api-key": _GEMINI}
_BY_START: Mapping[str, Front] = {"/v1beta/": _GEMINI, "/api/": _OLLAMA}
_UNTYPED = "/api/"
"""Below this path bodies need not say that they are JSON: Ollama does not ask, and its examples with curl do not."""
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
        observed: Observed,
        fetcher: GuardedFetcher,
        guardrails: Guardrails | None = None,
        cache: ExactCache | None = None,
        accounts: Accounts | None = None,
        admin: Service | None = None,
        config: Config,
        redact: Redactor,
    ) -> None:
        self._config = config
        self.redact = redact
        self._providers = providers
        self._observed = observed
        self._fetcher = fetcher
        self._guardrails = guardrails
        self._cache = cache
        self._stateful = stateful
        self._accounts = accounts
        self._lists = lists
        self._router = router
        self.log = log
        self.service = service
        self.admin = admin
        """What serves the admin port; None: there is none, and the main one has the admin routes."""
        self.connections = Connections(service)

    def snapshot(self) -> Snapshot | None:
        """What was counted; None: nothing is."""
        return self._observed.metrics.snapshot() if self._observed.metrics is not None else None

    def inheritance(self, config: Config) -> Inheritance:
        """What an app with this configuration may take over."""
        same_limits = self._config.run.shared is None and config.run.shared is None
        return Inheritance(
            unchanged_providers(self._config, config, self._providers),
            self._fetcher if self._config.run.fetch == config.run.fetch else None,
            self._accounts.limiter if self._accounts is not None and same_limits else None,
            self._observed.metrics,
        )

    async def start(self, after: "App | None" = None) -> None:
        """Tells the providers to start; what they load, they load in the background. `after`: the app before, whose
        providers have started."""
        started = set(after._providers.values()) if after is not None else set()
        for provider in self._providers.values():
            if provider not in started:
                await provider.start()
        await self._stateful.start()
        self._observed.start()
        self.service.started = True

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
    lists = ModelLists(providers, around.clock)
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
    untyped = BodyReader(max_bytes, held, any_type=True)
    generation = partial(
        Generation,
        now=around.now,
        max_depth=config.server.max_depth,
        keepalive_s=config.server.keepalive_s,
    )
    stateful = Stateful(config, router, bodies, log, now=around.now, token=around.token, redact=redact)
    preloads = {
        path: OllamaPreloads(names, chat=path == "/api/chat", now=around.now, max_depth=config.server.max_depth)
        for path in ("/api/chat", "/api/generate")
    }
    served: dict[str, Served] = {
        path: generation(
            front,
            router,
            untyped if path.startswith(_UNTYPED) else bodies,
            keeper=stateful.chats if path == _CHAT else None,
            preloads=preloads.get(path),
        )
        for path, front in fronts.items()
    }
    counts = TokenCounts(router)
    served.update(ability_routes(router, bodies, now=around.now, max_depth=config.server.max_depth))
    for path, front in _COUNTS.items():
        served[path] = TokenCount(front, counts, bodies, max_depth=config.server.max_depth)
    local_first = sorted(providers, key=lambda name: not isinstance(config.providers.get(name), LocalProvider))
    catalogue = Catalogue(
        names,
        lists,
        {name: providers[name] for name in local_first},
        local=_loaded_at_start(config, providers),
        started_at=int(around.now()),
    )
    served.update(ollama_posts(_OLLAMA, catalogue, router, untyped, now=around.now, max_depth=config.server.max_depth))
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
        asked=ollama_questions(_OLLAMA, catalogue),
        other={
            **forwarded,
            **stateful.routes,
            **stateful.chat_routes(_CHAT, served),
            **({} if has_admin_port else admin_routes(admin_table)),
        },
        lists=_LISTS,
        by_header=_BY_HEADER,
        by_start=_BY_START,
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
        observed=observed,
        fetcher=fetcher,
        guardrails=guardrails,
        cache=cache,
        accounts=accounts,
        admin=admin,
        config=config,
        redact=redact,
    )


def build_providers(
    config: Config, fetcher: Fetcher | None = None, there: Mapping[str, Provider] = NOTHING.providers
) -> dict[str, Provider]:
    """The configured providers, not started, those that are `there` as they are.

    Raises ValueError or ImportError, naming the provider.
    """
    return {name: there.get(name) or build_provider_of(config, name, fetcher) for name in config.providers}


def build_provider_of(config: Config, name: str, fetcher: Fetcher | None) -> Provider:
    """The configured provider of this name, not started. Raises ValueError or ImportError, naming it."""
    timeouts = config.reliability.timeouts
    limits = Limits(
        connect_s=timeouts.connect_s,
        first_token_s=timeouts.first_token_s,
        gap_s=timeouts.gap_s,
        total_s=timeouts.total_s,
    )
    may_bring = config.server.request_templates
    return build_provider(_settings(name, config.providers[name], limits, fetcher, request_templates=may_bring))


def _settings(
    name: str, entry: ProviderConfig, limits: Limits, fetcher: Fetcher | None, *, request_templates: bool
) -> ProviderSettings:
    if isinstance(entry, LocalProvider):
        general = {"type", "enabled", "params", "unsupported_params", "model"}
        return ProviderSettings(
            name=name,
            type=entry.type,
            params=entry.params,
            limits=limits,
            options={**entry.model_dump(exclude=general), "request_templates": request_templates},
            fetcher=fetcher,
        )
    general = {"type", "enabled", "base_url", "api_key", "headers", "proxy", "ca_file", "max_connections", "params"}
    return ProviderSettings(
        name=name,
        type=entry.type,
        base_url=entry.base_url,
        api_key=entry.api_key.get_secret_value() if entry.api_key is not None else None,
        headers={header: value.get_secret_value() for header, value in entry.headers.items()},
        proxy=entry.proxy.get_secret_value() if entry.proxy is not None else None,
        ca_file=entry.ca_file,
        max_connections=entry.max_connections,
        user_agent=f"llm-protocol-gateway/{VERSION}",
        params=entry.params,
        limits=limits,
        options=entry.model_dump(exclude={*general, "unsupported_params"}, exclude_none=True),
        fetcher=fetcher,
    )


def _loaded_at_start(config: Config, providers: Mapping[str, Provider]) -> list[tuple[str, str]]:
    return [
        (name, model)
        for name, entry in config.providers.items()
        if isinstance(entry, LocalProvider) and name in providers
        for model, row in entry.models.items()
        if row.load == "start"
    ]
