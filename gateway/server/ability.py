"""One call for something else than generation: body -> request -> route -> body.

What is asked, and in which words, is passed in; keys, sizes, errors and headers are those of generation.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.rerank import RerankRequest, ScoreRequest
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest
from adapters.front import AnswerHead, Front
from gateway.guardrails.ability_texts import HasTexts
from gateway.guardrails.guardrail import Subject
from gateway.http.answer import Reply
from gateway.routing.router import Progress
from gateway.server.exchange import Exchange
from gateway.server.generation import admit
from gateway.server.means import Means
from gateway.server.reservation import reserve

__all__ = ["Ability", "AbilityFront", "Asks"]


Asked = EmbeddingRequest | RerankRequest | ScoreRequest | TokenizeRequest | DetokenizeRequest
Q = TypeVar("Q", bound=Asked)
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
Asks = Callable[[Q, Progress], Awaitable[A]]


def _of_model(request: Q, name: str) -> Q:
    """The request with this model."""
    if isinstance(request, TokenizeRequest):
        return replace(request, request=replace(request.request, model=name))
    return replace(request, model=name)


class AbilityFront(Protocol[Q, A_contra]):
    """One such call in one dialect."""

    id_prefix: str

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> Q:
        """The request, with the id that an upstream is told. Raises InvalidRequest, naming the path."""
        ...

    def render(self, request: Q, result: A_contra, head: AnswerHead) -> bytes: ...


class Ability(Generic[Q, A]):
    """`ask` gets the answer (`gateway.routing.abilities`); `front` is the dialect of errors, None is OpenAI's."""

    def __init__(
        self,
        words: AbilityFront[Q, A],
        ask: Asks[Q, A],
        means: Means,
        front: Front | None = None,
    ) -> None:
        self.front = front
        self._words = words
        self._ask = ask
        self._means = means

    async def serve(self, exchange: Exchange) -> Reply:
        means, router = self._means, self._means.router
        body = await exchange.read(means.bodies)
        request = self._words.parse(body, max_depth=means.max_depth, request_id=exchange.request_id)
        del body
        if exchange.path_model is not None or not request.model:
            request = _of_model(request, exchange.path_model or means.unnamed(exchange.key))
        exchange.model, exchange.streams = request.model, False
        await admit(exchange, request, router.names)
        await reserve(exchange, request.model, request, router.names)
        guardrails = router.guardrails
        if guardrails is not None and isinstance(request, HasTexts):
            subject = Subject(request.model, exchange.request_id, exchange.key.id if exchange.key else None)
            request = await guardrails.checked_ability(request, subject)
        progress = exchange.begin_routing()
        head = AnswerHead(f"{self._words.id_prefix}{exchange.token}", int(means.now()), request.model)
        result = await self._ask(request, progress)
        exchange.upstream_request_id = progress.upstream_request_id
        return exchange.answer(self._words.render(request, result, head))
