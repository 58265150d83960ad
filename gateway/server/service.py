"""The request edge: finds the route of a request, lets it in, and turns whatever happens into one answer.

One of the two places that catch everything. Every answer of the gateway, on every path, is made or passed on here.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Never, Protocol
from urllib.parse import unquote

import orjson

from adapters.canonical.errors import (
    AuthenticationFailed,
    BodyTooLarge,
    ClientClosed,
    GatewayError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    NotReady,
    UpstreamAuth,
)
from adapters.front import Front
from adapters.openai.errors import render_error
from gateway.failures import internal_error, shutting_down
from gateway.http.answer import Answer, Reply
from gateway.http.request import Request
from gateway.server.answer_headers import client_request_id, error_headers
from gateway.server.body import HeldBytes
from gateway.server.catalogue import Catalogue
from gateway.server.client_addresses import ClientAddresses
from gateway.server.cors import Cors
from gateway.server.door import Door, with_password_as_key
from gateway.server.exchange import Exchange
from gateway.server.listing import of_client
from gateway.server.log import Log
from gateway.server.routes import Handler, Route, Routes
from gateway.usage.accounts import Accounts
from providers.client_key import CLIENT_KEY, OwnKey

__all__ = ["RequestObserver", "Service"]

_EVICTION_S = 5.0
"""What a cancelled request gets to free what it holds and tell its client."""
_NONE: Mapping[str, Never] = MappingProxyType({})
_HEALTH = ("/healthz", "/health")
"""The second is what load balancers and compose files ask that were written for vLLM or llama.cpp."""


class RequestObserver(Protocol):
    """Sees every request but those for health. Called on the hot path: must be quick, and not raise."""

    def request_began(self, exchange: Exchange) -> None: ...

    def request_ended(self, exchange: Exchange, route: str) -> None:
        """Exactly once for each that began. `route` is the path as the table of routes has it; empty: there is none."""
        ...


class Service:
    """`by_header`: clients that send this header speak this dialect, also on the paths that all dialects share.
    `by_start`: the dialect of errors below such a path. All paths stand beneath `prefix`; those of health stand alone
    as well.

    `clock` gives seconds of any origin, `token` the random part of ids, `redact` hides secrets in a text.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        catalogue: Catalogue,
        door: Door,
        log: Log,
        *,
        clients: ClientAddresses,
        by_header: Mapping[str, Front] = _NONE,
        by_start: Mapping[str, Front] = _NONE,
        held: HeldBytes,
        clock: Callable[[], float],
        token: Callable[[], str],
        redact: Callable[[str], str],
        accounts: Accounts | None = None,
        observer: RequestObserver | None = None,
        cors: Cors | None = None,
        extra_headers: Mapping[str, str] = _NONE,
        prefix: str = "",
    ) -> None:
        self._observer = observer
        self._cors = cors
        self._extra_headers = extra_headers
        health = {**{path: Route({"GET": self._health}) for path in _HEALTH}, "/readyz": Route({"GET": self._ready})}
        self._open = frozenset((*health, *[f"{prefix}{path}" for path in health]))
        """Paths that need no key."""
        self._routes = Routes({**routes, **health}, prefix, bare=health)
        self._by_header = by_header
        self._by_start = {f"{prefix}{start}": front for start, front in by_start.items()}
        self._catalogue = catalogue
        self._door = door
        self._clients = clients
        self._log = log
        self._held = held
        self._clock = clock
        self._token = token
        self._redact = redact
        self._accounts = accounts
        self._active: set[Exchange] = set()
        self._idle = asyncio.Event()
        self.started = False
        """Whether the providers were told to start, and what is needed is open."""
        self.draining = False

    async def handle(self, request: Request) -> Reply:
        """The answer to any request. Raises nothing but the cancellation of a client that left."""
        token = self._token()
        given = client_request_id(request)
        request_id = f"req_{token}" if given is None else self._redact(given)
        task = request.wire.task
        extra = self._extra_headers
        if self._cors is not None:
            preflight = self._cors.preflight(request)
            if preflight is not None:
                return preflight
            extra = {**extra, **self._cors.headers(request.headers.get("origin"))}
        exchange = Exchange(request, task, token=token, request_id=request_id, clock=self._clock, extra_headers=extra)
        exchange.accounts = self._accounts
        path, query = request.path, request.query_string
        route, exchange.path_model = self._routes.find(path, query)
        exchange.front = (route.front if route is not None else None) or self._front_of(request, path)
        self._active.add(exchange)
        if self._observer is not None and path not in self._open:
            self._observer.request_began(exchange)
        try:
            handler = await self._handler(exchange, route, path, query)
            response = await handler(exchange)
        except asyncio.CancelledError:
            if not exchange.evicted or task is None or task.uncancel() > 0:
                exchange.status, exchange.error = 499, ClientClosed("the client left")
                raise
            error = shutting_down()
            response = await self._fail(exchange, route, error)
        except GatewayError as error:
            response = await self._fail(exchange, route, error)
        except Exception as error:
            if isinstance(error, ConnectionError) and request.wire.is_lost:
                exchange.status, exchange.error = 499, ClientClosed("the client left")
                raise asyncio.CancelledError from error
            self._log.fault(error, request_id=exchange.request_id)
            response = await self._fail(exchange, route, internal_error(exchange.request_id))
        finally:
            self._end(exchange, route)
        if self.draining:
            response.closes = True
        return response

    def _end(self, exchange: Exchange, route: Route | None) -> None:
        """Gives back what it held, and tells of it."""
        self._held.give(exchange.held_bytes)
        self._active.discard(exchange)
        if not self._active:
            self._idle.set()
        exchange.end()
        exchange.client = self._clients.of(exchange.request)
        path = exchange.request.path
        if path not in self._open:
            if self._observer is not None:
                self._observer.request_ended(exchange, route.label if route is not None else "")
            exchange.log(self._log, path if self._routes.is_written_out(path) else self._log.outside(path))

    def refuse(self, error: GatewayError) -> Answer:
        """The answer to what is no readable HTTP request."""
        return self._outside(error, f"req_{self._token()}")

    def fail(self, fault: BaseException) -> Answer:
        """The answer where something went wrong outside `handle`."""
        request_id = f"req_{self._token()}"
        self._log.fault(fault, request_id=request_id)
        return self._outside(internal_error(request_id), request_id)

    def _outside(self, error: GatewayError, request_id: str) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Server": "gateway",
            "x-request-id": request_id,
            **self._extra_headers,
        }
        return Answer(status=error.status, body=render_error(error), headers=error_headers(headers, error))

    @property
    def active(self) -> int:
        """How many requests run."""
        return len(self._active)

    async def wait_idle(self) -> None:
        """Returns once no request runs."""
        while self._active:
            self._idle.clear()
            await self._idle.wait()

    async def drain(self, seconds: float) -> None:
        """Waits until no request runs, at most so long; then cancels the rest, telling their clients."""
        self.draining = True
        if not await self._is_idle_within(seconds):
            for exchange in list(self._active):
                exchange.evict()
            await self._is_idle_within(_EVICTION_S)

    async def _is_idle_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.wait_idle()
        except TimeoutError:
            return False
        return True

    async def _handler(self, exchange: Exchange, route: Route | None, path: str, query: str) -> Handler:
        """What serves this request. Raises what the door, or a wrong path or method, calls for."""
        request = exchange.request
        if path not in self._open:
            headers: Mapping[str, str] = request.headers
            if route is not None and route.takes_password:
                headers = with_password_as_key(headers)
            exchange.key = await self._door.admit(headers, query)
            if exchange.key is not None:  # the next request of a connection runs in the same context
                secret = exchange.key.upstream_key
                CLIENT_KEY.set(None if secret is None else OwnKey(secret))
        if route is None:
            meant = self._routes.nearest(path)
            hint = "" if meant is None else f", did you mean {meant}?"
            raise NotFound(f"there is no {self._redact(unquote(path))[:200]}{hint}", code="unknown_url")
        methods = route.methods
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise MethodNotAllowed(f"{request.method} is not allowed here, expected {' or '.join(methods)}")
        if self.draining and "POST" in methods:
            raise shutting_down()
        return handler

    async def _fail(self, exchange: Exchange, route: Route | None, error: GatewayError) -> Reply:
        """An error as the answer: with its status while nothing was sent, in band after that."""
        if exchange.model and (isinstance(error, ModelNotFound) or error.code == "model_not_allowed"):
            error.message += self._catalogue.hint(exchange.model, exchange.key)
        error = error.told(self._redact)
        if isinstance(error, UpstreamAuth) and exchange.key is not None and exchange.key.upstream_key is not None:
            error = AuthenticationFailed("the provider does not accept this key")  # which is the client's own
        exchange.error = error
        stream = exchange.stream
        if stream is not None and stream.stream is not None and exchange.renderer is not None:
            try:
                frames = exchange.renderer.fail(error)
                await self._settle(exchange)
                return await stream.end(frames)
            except ConnectionError:
                return stream.stream
        exchange.status = error.status
        body = exchange.front.render_error(error) if exchange.front is not None else render_error(error)
        headers = error_headers(exchange.headers(), error)
        if isinstance(error, MethodNotAllowed):
            headers["Allow"] = ", ".join(route.methods if route is not None else ())
        elif isinstance(error, AuthenticationFailed) and route is not None and route.takes_password:
            headers["WWW-Authenticate"] = 'Basic realm="gateway", charset="UTF-8"'
        response = Answer(status=error.status, body=body, headers=headers)
        if isinstance(error, BodyTooLarge):
            response.closes = True
        return response

    async def _settle(self, exchange: Exchange) -> None:
        """What is done at a stream's end. It failed already, so a failure in that is only logged."""
        if exchange.settle is not None:
            try:
                await exchange.settle()
            except NotReady:
                return  # a database that is away, of which the log says enough
            except Exception as error:  # the client still has to hear of the first
                self._log.fault(error, request_id=exchange.request_id)

    def _front_of(self, request: Request, path: str) -> Front | None:
        """The dialect of a client on a path that has none of its own."""
        return of_client(request, self._by_header) or next(
            (front for start, front in self._by_start.items() if path.startswith(start)), None
        )

    async def _health(self, exchange: Exchange) -> Reply:
        return exchange.answer(b'{"status":"ok"}')

    async def _ready(self, exchange: Exchange) -> Reply:
        reasons = [] if self.started else ["the gateway is starting"]
        reasons += [shutting_down().message] if self.draining else []
        reasons = reasons or self._catalogue.obstacles()
        if not reasons:
            return exchange.answer(b'{"status":"ready"}')
        told = [self._redact(reason) for reason in reasons]
        return exchange.answer(orjson.dumps({"status": "not ready", "reasons": told}), status=503)
