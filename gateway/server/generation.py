"""The one way of a generation request: body -> canonical request -> router -> frames, or their fold -> the socket.

Errors are raised as they come; the edge (`gateway.server.service`) turns them into answers. A client that leaves
cancels the task that runs this, and with it the provider.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from msgspec.structs import replace

from adapters.canonical.errors import ModelNotFound, PermissionDenied
from adapters.canonical.request import Request
from adapters.canonical.result import Folder, Result
from adapters.front import AnswerHead, Front
from gateway.http.answer import Answer, Reply
from gateway.routing.fitting import Spelling
from gateway.routing.names import Names
from gateway.routing.router import Progress
from gateway.server.answer_headers import forwarded_headers
from gateway.server.event_stream import EventStream
from gateway.server.exchange import Exchange
from gateway.server.means import Means
from gateway.server.reservation import reserve
from gateway.usage.estimate import unreported_usage
from providers.base import Batch

__all__ = ["AnswerKeeper", "AnswerSource", "Generation", "Named", "Preloads", "admit", "streamed", "whole_result"]


class AnswerSource(Protocol):
    """Gives answers as the router does."""

    def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]: ...


class AnswerKeeper(Protocol):
    """Answers requests that want their answer to be kept."""

    async def answer(self, exchange: Exchange, front: Front, request: Request, head: AnswerHead) -> Reply: ...


class Preloads(Protocol):
    """Answers bodies that ask nothing of a model but to be there."""

    async def answer(self, exchange: Exchange, body: bytes) -> Reply | None:
        """None for a body that asks something."""
        ...


class Generation:
    def __init__(
        self,
        front: Front,
        means: Means,
        *,
        keepalive_s: float,
        keeper: "AnswerKeeper | None" = None,
        preloads: Preloads | None = None,
    ) -> None:
        self.front = front
        self._keeper = keeper
        self._preloads = preloads
        self._router = means.router
        self._unnamed = means.unnamed
        self._bodies = means.bodies
        self._now = means.now
        self._max_depth = means.max_depth
        self._keepalive_s = keepalive_s

    async def serve(self, exchange: Exchange) -> Reply:
        front = self.front
        body = await exchange.read(self._bodies)
        if self._preloads is not None and (answer := await self._preloads.answer(exchange, body)) is not None:
            return answer
        request = front.parse(body, max_depth=self._max_depth)
        del body
        if exchange.path_model is not None or not request.model:
            request = replace(request, model=exchange.path_model or self._unnamed(exchange.key))
        exchange.model, exchange.streams = request.model, request.stream
        await admit(exchange, request, self._router.names)
        await reserve(exchange, request.model, request, self._router.names)
        if front.forwarded_headers:
            request = replace(request, headers=forwarded_headers(exchange.request, front.forwarded_headers))
        if request.request_id is None:
            request = replace(request, request_id=exchange.request_id)
        exchange.begin_routing()
        head = AnswerHead(f"{front.id_prefix}{exchange.token}", int(self._now()), request.model)
        if request.store and self._keeper is not None:
            return await self._keeper.answer(exchange, front, request, head)
        if request.stream:
            return await self._stream(exchange, front, request, head)
        return await self._answer(exchange, front, request, head)

    async def _answer(self, exchange: Exchange, front: Front, request: Request, head: AnswerHead) -> Answer:
        result = await whole_result(exchange, self._router, front, request)
        return exchange.answer(front.render_result(request, result, head))

    async def _stream(self, exchange: Exchange, front: Front, request: Request, head: AnswerHead) -> Reply:
        exchange.renderer = front.renderer(request, head)
        return await streamed(exchange, self._router, front, request, keepalive_s=self._keepalive_s)


async def whole_result(exchange: Exchange, source: AnswerSource, front: Front, request: Request) -> Result:
    """The whole answer."""
    assert exchange.progress is not None
    folder = Folder()
    transcript = exchange.transcript
    if transcript is not None:
        transcript.asked(request)
    batches = source.stream(request, exchange.progress, front.client_field)
    try:
        async for batch in batches:
            if exchange.first_output is None:
                exchange.see_first(batch)
            folder.feed(batch)
            if transcript is not None:
                transcript.feed(batch)
    finally:
        await batches.aclose()
    folder.feed(unreported_usage(request, exchange.progress))
    return folder.result()


async def streamed(
    exchange: Exchange, source: AnswerSource, front: Front, request: Request, *, keepalive_s: float
) -> Reply:
    """The answer as the frames of `exchange.renderer`, sent as they come."""
    assert exchange.progress is not None
    renderer = exchange.renderer
    assert renderer is not None
    transcript = exchange.transcript
    if transcript is not None:
        transcript.asked(request)
    with EventStream(
        exchange.request, exchange.stream_headers, keepalive_s=keepalive_s, frame=front.keepalive
    ) as stream:
        exchange.stream = stream
        feed, write = renderer.feed, stream.write
        async with aclosing(source.stream(request, exchange.progress, front.client_field)) as batches:
            async for batch in batches:
                if exchange.first_output is None:
                    exchange.see_first(batch)
                if transcript is not None:
                    transcript.feed(batch)
                if frames := feed(batch):
                    await write(frames)
            frames = feed(unreported_usage(request, exchange.progress))
            frames += exchange.last_comment() + renderer.finish()
            if exchange.settle is not None:
                await exchange.settle()
            return await stream.end(frames)


class Named(Protocol):
    """A request of any kind."""

    @property
    def model(self) -> str: ...


async def admit(exchange: Exchange, request: Named, names: Names) -> None:
    """Raises PermissionDenied where the key's list of models lacks this one."""
    key = exchange.key
    if key is None or key.may_use(request.model):
        return
    refusal = PermissionDenied(f"this key may not use the model '{request.model}'", code="model_not_allowed")
    try:
        name = await names.public_name(request.model)
    except ModelNotFound:
        raise refusal from None  # the same for what there is and what there is not: names are not to be guessed
    if not key.may_use(name):
        raise refusal
