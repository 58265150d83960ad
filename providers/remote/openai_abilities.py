"""What an OpenAI-shaped server can do beside generating: joins a vendor's row, the dialects and HTTP, call by call.

Owns no wire words, no sockets and no retries. What the row lacks is an UnsupportedParameter.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.openai.embeddings.upstream import EMBEDDINGS_PATH, parse_embeddings, render_embeddings
from adapters.openai.rerank.upstream import parse_rerank, render_rerank
from adapters.openai.tokens.upstream import (
    CHAT_COUNT_PATH,
    parse_detokenized,
    parse_token_count,
    parse_tokens,
    render_detokenize,
    render_tokenize,
)
from adapters.upstream import Upstream
from providers.abilities import ForwardAnswer, ForwardCall, lacks
from providers.remote.answer import Answer
from providers.remote.endpoint import Endpoint
from providers.remote.exchange import failure_of
from providers.remote.http import BESIDE_VERSION, HttpClient
from providers.remote.question import Reply, post_question
from providers.remote.vendors import Vendor

__all__ = ["OpenAIAbilities"]

_TOKENIZE_PATH = f"{BESIDE_VERSION}tokenize"
_DETOKENIZE_PATH = f"{BESIDE_VERSION}detokenize"


class OpenAIAbilities:
    """`chat` and `completions` are the server's generation dialects: for its error bodies, and to spell prompts."""

    def __init__(
        self, client: HttpClient, vendor: Vendor, endpoint: Endpoint, chat: Upstream, completions: Upstream
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._vendor = vendor
        self._chat = chat
        self._completions = completions

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        self._require("embeddings", request.model, "gives no embeddings")
        called = replace(request, model=self._endpoint.upstream_model(request.model))
        body = render_embeddings(called, base64=self._vendor.base64_embeddings)
        path = self._endpoint.path(EMBEDDINGS_PATH, request.model)
        reply = await self._ask(path, body, request.request_id)
        return replace(parse_embeddings(request, reply.body), request_id=reply.request_id)

    async def rerank(self, request: RerankRequest) -> RerankResult:
        self._require("rerank", request.model, "does not rank")
        body = render_rerank(request, self._vendor.rerank_words)
        path = "/rerank" if self._vendor.rerank_is_versioned else f"{BESIDE_VERSION}rerank"
        reply = await self._ask(path, body, request.request_id)
        return replace(parse_rerank(request, reply.body), request_id=reply.request_id)

    async def count_tokens(self, request: Request) -> Sequence[int]:
        """By the server's own count of a chat prompt, or by its tokenizer."""
        if "chat_token_count" in self._vendor.abilities and request.prompts is None:
            body = self._chat.render_request(request)
            reply = await self._ask(CHAT_COUNT_PATH, body, request.request_id)
            return (parse_token_count(reply.body),)
        self._require("tokenize", request.model, "can't be asked for its tokens")
        return (len((await self.tokenize(TokenizeRequest(request=request))).ids),)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        self._require("tokenize", request.model, "can't be asked for its tokens")
        generation = request.request
        upstream = self._chat if generation.prompts is None else self._completions
        body = render_tokenize(request, upstream.render_request(generation))
        reply = await self._ask(_TOKENIZE_PATH, body, generation.request_id)
        return parse_tokens(reply.body)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        self._require("tokenize", request.model, "can't be asked for its tokens")
        reply = await self._ask(_DETOKENIZE_PATH, render_detokenize(request), request.request_id)
        return parse_detokenized(reply.body)

    def forwards(self, path: str) -> bool:
        """See `providers.abilities.Forwarder.forwards`."""
        return any(path == known or path.startswith(f"{known}/") for known in self._vendor.forwarded_paths)

    async def forward(self, call: ForwardCall) -> ForwardAnswer:
        """See `providers.abilities.Forwarder.forward`."""
        answer = await self._client.forward(
            call.method, call.path, call.headers, call.body, length=call.length, request_id=call.request_id
        )
        try:
            if not 200 <= answer.status < 300:
                raise await failure_of(self._client, self._chat, answer)
            request_id = answer.headers.get(self._client.request_id_header)
            return ForwardAnswer(
                status=answer.status, headers=answer.headers, body=_pieces(answer), request_id=request_id
            )
        except BaseException:
            answer.close()
            raise

    async def _ask(self, path: str, body: bytes, request_id: str | None) -> Reply:
        return await post_question(self._client, self._chat, path, body, request_id=request_id)

    def _require(self, ability: str, model: str, otherwise: str) -> None:
        if ability not in self._vendor.abilities:
            raise lacks(model, otherwise)


async def _pieces(answer: Answer) -> AsyncGenerator[bytes, None]:
    """The body as it arrives. Closing it closes the connection."""
    with answer:
        while piece := await answer.read():
            yield piece
