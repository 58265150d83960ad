"""POST /v1/responses/compact and /v1/responses/input_tokens: what an input comes to, without an answer to it."""

from collections.abc import Callable

from adapters.canonical.errors import UnsupportedParameter
from adapters.openai.responses.compaction import (
    COMPACTION_PREFIX,
    compaction_object,
    native_compaction_object,
    summary_request,
    token_count_object,
)
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.parse import read_body
from gateway.http.answer import Reply
from gateway.responses.prepared import Preparation, Prepared
from gateway.routing.abilities import compact, count_tokens
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange
from gateway.server.generation import admit, whole_result
from gateway.server.reservation import reserve
from gateway.tools.answers import ToolAnswers
from gateway.usage.estimate import prompt_tokens

__all__ = ["Compaction"]


class Compaction:
    """`for_client` gives the front for one request."""

    def __init__(
        self,
        for_client: Callable[[Exchange], ResponsesFront],
        answers: ToolAnswers,
        bodies: BodyReader,
        preparation: Preparation,
        *,
        max_depth: int,
    ) -> None:
        self._for_client = for_client
        self._answers = answers
        self._router = answers.router
        self._bodies = bodies
        self._preparation = preparation
        self._max_depth = max_depth

    async def count(self, exchange: Exchange) -> Reply:
        """How many tokens the input has for the model."""
        prepared = await self._prepare(exchange, spends=False)
        progress = exchange.begin_routing()
        request = await self._answers.first_request(prepared.request)
        tokens = await count_tokens(self._router, request, progress, prepared.front.client_field)
        return exchange.answer(token_count_object(tokens))

    async def compact(self, exchange: Exchange) -> Reply:
        """The input made short: by the upstream's own compaction where every target of the model has one, else by the
        model."""
        prepared = await self._prepare(exchange, spends=True)
        request = await self._answers.first_request(prepared.request)
        if await self._answers.is_native(request.model):
            try:
                found = await compact(self._router, request, exchange.begin_routing(), prepared.front.client_field)
                return exchange.answer(native_compaction_object(prepared.head, found.items, found.usage))
            except UnsupportedParameter:
                pass  # it turned out to have none
        exchange.begin_routing()
        request = summary_request(request, input_tokens=prompt_tokens(request))
        result = await whole_result(exchange, self._router, prepared.front, request)
        items = [item.raw for item in (*prepared.before, *prepared.given)]
        return exchange.answer(compaction_object(prepared.head, items, result, prepared.front.seal))

    async def _prepare(self, exchange: Exchange, *, spends: bool) -> Prepared:
        """`spends`: the model will be asked."""
        front = self._for_client(exchange)
        body = await exchange.read(self._bodies)
        asked = read_body(body, max_depth=self._max_depth)
        exchange.model, exchange.streams = asked.model, False
        await admit(exchange, asked, self._router.names)
        response_id = f"{COMPACTION_PREFIX}{exchange.token}"
        prepared = await self._preparation.prepare(asked, front, owner=exchange.owner, response_id=response_id)
        await reserve(exchange, asked.model, prepared.request if spends else None, self._router.names)
        return prepared.with_request_id(exchange.request_id)
