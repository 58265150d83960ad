"""POST /v1/responses: answered at once, streamed, or made in the background; kept unless the client says otherwise."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.parse import Asked, read_body
from adapters.openai.responses.render import ResponseStreamRenderer, render_response_result
from adapters.openai.responses.wire_events import ResponseEvent, error_event, frames
from adapters.openai.vocabulary import DONE
from gateway.http.answer import Reply
from gateway.responses.background import Background
from gateway.responses.prepared import Preparation, Prepared
from gateway.routing.router import Progress
from gateway.server.body import BodyReader
from gateway.server.event_stream import EventStream
from gateway.server.exchange import Exchange
from gateway.server.generation import admit, streamed, whole_result
from gateway.server.reservation import reserve
from gateway.tools.answers import ToolAnswers

__all__ = ["ResponseCreation", "send_events"]


class ResponseCreation:
    """`for_client` gives the front for one request."""

    def __init__(
        self,
        front: ResponsesFront,
        for_client: Callable[[Exchange], ResponsesFront],
        answers: ToolAnswers,
        bodies: BodyReader,
        preparation: Preparation,
        *,
        background: Background,
        max_depth: int,
        keepalive_s: float,
    ) -> None:
        self.front = front
        self._for_client = for_client
        self._answers = answers
        self._names = answers.router.names
        self._bodies = bodies
        self._preparation = preparation
        self._background = background
        self._max_depth = max_depth
        self._keepalive_s = keepalive_s

    async def serve(self, exchange: Exchange) -> Reply:
        front = self._for_client(exchange)
        exchange.front = front
        asked = read_body(await exchange.read(self._bodies), max_depth=self._max_depth)
        prepared = await self._prepare(exchange, front, asked)
        request = prepared.request
        exchange.streams = request.stream
        await reserve(exchange, request.model, request, self._names)
        progress = exchange.begin_routing()
        if prepared.state.background:
            return await self._in_background(exchange, prepared, progress)
        live = prepared.live(heard=request.stream)
        source = self._answers.of(prepared.head.id)

        async def keep() -> None:
            await self._preparation.keep(prepared, live)

        if request.stream:
            exchange.renderer, exchange.settle = ResponseStreamRenderer(live), keep
            return await streamed(exchange, source, front, request, keepalive_s=self._keepalive_s)
        body = render_response_result(live, await whole_result(exchange, source, front, request))
        await keep()
        return exchange.answer(body)

    async def _prepare(self, exchange: Exchange, front: ResponsesFront, asked: Asked) -> Prepared:
        exchange.model = asked.model
        await admit(exchange, asked, self._names)
        response_id = f"{front.id_prefix}{exchange.token}"
        prepared = await self._preparation.prepare(asked, front, owner=exchange.owner, response_id=response_id)
        return prepared.with_request_id(exchange.request_id)

    async def _in_background(self, exchange: Exchange, prepared: Prepared, progress: Progress) -> Reply:
        exchange.hand_over()
        job = await self._background.submit(prepared, progress)
        if not prepared.request.stream:
            return exchange.answer(job.first)
        events = self._background.logs.follow(prepared.owner, prepared.head.id, -1)
        return await send_events(exchange, events, prepared.front, keepalive_s=self._keepalive_s)


class _Reader:
    """What a reader of a log is told where its stream fails, though the response did not."""

    def __init__(self, front: ResponsesFront) -> None:
        self._front = front
        self.number = 0
        """Of the next event."""

    def feed(self, events: Sequence[Event]) -> bytes:
        return b""  # a log has frames, not events of a provider

    def finish(self) -> bytes:
        return DONE

    def fail(self, error: GatewayError) -> bytes:
        return frames([error_event(error, self.number, self._front.form)]) + DONE


async def send_events(
    exchange: Exchange,
    events: AsyncGenerator[list[ResponseEvent], None],
    front: ResponsesFront,
    *,
    keepalive_s: float,
) -> Reply:
    """The events of a log as a stream, as fast as the client takes them."""
    exchange.renderer = reader = _Reader(front)
    with EventStream(
        exchange.request, exchange.stream_headers, keepalive_s=keepalive_s, frame=front.keepalive
    ) as stream:
        exchange.stream = stream
        async with aclosing(events):
            async for group in events:
                reader.number = group[-1].sequence_number + 1
                await stream.write(frames(group))
            return await stream.end(DONE)
