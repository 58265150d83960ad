"""The WebSocket on /v1/responses: each `response.create` is answered by a response's events, one response at a time.

The last responses are remembered for the connection, also where they are not kept, so that a chain with `store: false`
goes on. A turn that fails makes the connection forget what it followed on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from adapters.canonical.errors import GatewayError, InvalidRequest, MethodNotAllowed
from adapters.canonical.events import ChoiceFinished
from adapters.canonical.stop_reason import StopReason
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.live import LiveResponse
from adapters.openai.responses.parse import Asked
from adapters.openai.responses.socket import on_lane, read_event, socket_error
from adapters.openai.responses.wire_events import ResponseEvent
from gateway.failures import internal_error
from gateway.http.answer import Reply
from gateway.http.websocket import CloseCode, WebSocket, open_websocket
from gateway.responses.prepared import Preparation, Prepared, kept_items
from gateway.server.exchange import Exchange
from gateway.server.generation import admit
from gateway.server.log import Log
from gateway.server.reservation import reserve
from gateway.storage.records import KeptItem
from gateway.tools.answers import ToolAnswers
from gateway.usage.estimate import unreported_usage

__all__ = ["ResponseSocket"]

LONGEST_S = 3600.0
"""A connection lasts no longer."""
_HEARTBEAT_S = 30.0
_CLOSE_S = 2.0
"""How long a client has to say that it closes as well."""
_WAITING = 16
"""So many requests of one socket are read before they are needed."""
_REMEMBERED = 8


class ResponseSocket:
    """`for_client` gives the front for one connection, `token` the random part of ids."""

    def __init__(
        self,
        for_client: Callable[[Exchange], ResponsesFront],
        answers: ToolAnswers,
        preparation: Preparation,
        log: Log,
        *,
        token: Callable[[], str],
        redact: Callable[[str], str],
        max_bytes: int,
        max_depth: int,
    ) -> None:
        self._for_client = for_client
        self.answers = answers
        self.names = answers.router.names
        self.preparation = preparation
        self.log = log
        self.token = token
        self.redact = redact
        self._max_bytes = max_bytes
        self.max_depth = max_depth
        self._open: set[_Connection] = set()

    async def serve(self, exchange: Exchange) -> Reply:
        front = self._for_client(exchange)
        socket = open_websocket(exchange.request, max_bytes=self._max_bytes, heartbeat_s=_HEARTBEAT_S, close_s=_CLOSE_S)
        if socket is None:
            raise MethodNotAllowed("GET is for WebSockets here; expected POST")
        exchange.status = 101
        connection = _Connection(self, exchange, front, socket)
        self._open.add(connection)
        try:
            async with asyncio.timeout(LONGEST_S):
                await connection.run()
        except TimeoutError:
            too_long = InvalidRequest(
                "a connection lasts an hour at most; open another one", code="websocket_connection_limit_reached"
            )
            await connection.send(socket_error(too_long))
        except asyncio.CancelledError:
            if not exchange.evicted or exchange.task is None or exchange.task.uncancel() > 0:
                raise
            await socket.close(code=CloseCode.GOING_AWAY)
        except ConnectionError:
            pass  # the client is gone
        finally:
            self._open.discard(connection)
        await socket.close(code=CloseCode.GOING_AWAY if connection.is_stopping else CloseCode.NORMAL_CLOSURE)
        return socket

    def stop(self) -> None:
        """Connections end after the response that they are at."""
        for connection in self._open:
            connection.stop()


class _Connection:
    """One socket: a task reads, another answers in order. The end of one ends the other."""

    def __init__(self, api: ResponseSocket, exchange: Exchange, front: ResponsesFront, socket: WebSocket) -> None:
        self._api = api
        self._exchange = exchange
        self._front = front
        self._socket = socket
        self._asked: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._recent: dict[str, Sequence[KeptItem]] = {}
        self._answering: asyncio.Task[None] | None = None
        self._is_busy = False
        self.is_stopping = False

    async def run(self) -> None:
        """Until the client leaves. Raises ConnectionError."""
        self._answering = asyncio.ensure_future(self._answer())
        tasks = [asyncio.ensure_future(self._read()), self._answering]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def stop(self) -> None:
        """Ends it after the response that it is at."""
        self.is_stopping = True
        if not self._is_busy and self._answering is not None:
            self._answering.cancel()

    async def send(self, data: bytes) -> None:
        await self._socket.send(data)

    async def _read(self) -> None:
        async for message in self._socket:
            await self._asked.put(message)

    async def _answer(self) -> None:
        while not self.is_stopping:
            raw = await self._asked.get()
            self._is_busy = True
            try:
                turn = _Turn(self._api, self._exchange, self._front, self._recent, self.send)
                await turn.take(raw)
            finally:
                self._is_busy = False
                charge = self._exchange.hand_over()
                if charge is not None:
                    charge.settle()


class _Turn:
    """One request and its answer. `recent` are the responses that the connection remembers, with everything up to their
    ends; the oldest goes first."""

    def __init__(
        self,
        api: ResponseSocket,
        exchange: Exchange,
        front: ResponsesFront,
        recent: dict[str, Sequence[KeptItem]],
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._api = api
        self._exchange = exchange
        self._front = front
        self._recent = recent
        self._send = send
        self._lane: str | None = None
        self._parent: str | None = None

    async def take(self, raw: bytes) -> None:
        """Answers an event of the client. Raises ConnectionError."""
        try:
            request = read_event(raw, max_depth=self._api.max_depth)
            if request is None:
                return
            self._lane = request.lane
            asked = request.asked()
            self._parent = asked.state.previous_response_id
            await self._respond(await self._prepare(asked), generates=request.generates)
        except GatewayError as error:
            await self._refuse(error)
        except ConnectionError:
            raise
        except Exception as error:
            request_id = self._exchange.request_id
            self._api.log.fault(error, request_id=request_id)
            await self._refuse(internal_error(request_id))

    async def _prepare(self, asked: Asked) -> Prepared:
        api, exchange = self._api, self._exchange
        exchange.model, exchange.streams = asked.model, True
        await admit(exchange, asked, api.names)
        prepared = await api.preparation.prepare(
            asked,
            self._front,
            owner=exchange.owner,
            response_id=f"{self._front.id_prefix}{api.token()}",
            recent=self._recent,
        )
        await reserve(exchange, asked.model, prepared.request, api.names)
        return prepared.with_request_id(exchange.request_id)

    async def _respond(self, prepared: Prepared, *, generates: bool) -> None:
        """Raises GatewayError where nothing was sent yet, or where the end is lost."""
        live = prepared.live()
        try:
            if generates:
                await self._generate(prepared, live)
            else:
                await self._send_events(live.feed([ChoiceFinished(0, StopReason.STOP)]))
            last = live.finish()
        except GatewayError as error:
            if live.status == "queued":
                raise
            last = live.fail(error.told(self._api.redact))
        await self._api.preparation.keep(prepared, live)
        self._remember(prepared, live)
        await self._send_events(last)

    async def _generate(self, prepared: Prepared, live: LiveResponse) -> None:
        progress = self._exchange.begin_routing()
        progress.task = asyncio.current_task()
        source = self._api.answers.of(prepared.head.id)
        stream = source.stream(prepared.request, progress, prepared.front.client_field)
        async with aclosing(stream) as batches:
            async for batch in batches:
                await self._send_events(live.feed(batch))
        await self._send_events(live.feed(unreported_usage(prepared.request, progress)))

    async def _send_events(self, events: Sequence[ResponseEvent]) -> None:
        for event in events:
            await self._send(on_lane(event.data, self._lane))

    async def _refuse(self, error: GatewayError) -> None:
        self._recent.pop(self._parent or "", None)
        await self._send(on_lane(socket_error(error.told(self._api.redact)), self._lane))

    def _remember(self, prepared: Prepared, live: LiveResponse) -> None:
        if live.status not in ("completed", "incomplete"):
            self._recent.pop(self._parent or "", None)
            return
        made = kept_items(live.kept_items())
        self._recent[prepared.head.id] = (*prepared.before, *prepared.given, *made)
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]
