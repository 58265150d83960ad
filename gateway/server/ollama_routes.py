"""The paths that clients of Ollama know beside generation: lists of models, one model, the version, embeddings."""

from collections.abc import Mapping
from functools import partial

from adapters.ollama.embeddings import EmbeddingsFront, EmbedFront
from adapters.ollama.front import VERSION_BODY, OllamaChatFront, parse_show
from adapters.ollama.model_list import ModelCards, RunningModels, Tags
from adapters.ollama.preload import parse_preload, render_preload
from gateway.http.answer import Reply
from gateway.routing.abilities import preload
from gateway.server.ability_routes import embedding
from gateway.server.catalogue import Catalogue
from gateway.server.exchange import Exchange
from gateway.server.generation import admit
from gateway.server.listing import Constant, Listing, NamedInBody
from gateway.server.means import Means
from gateway.server.routes import Served
from gateway.version import VERSION

__all__ = ["OllamaPreloads", "ollama_posts", "ollama_questions"]

_ALIVE = b"Ollama is running"
"""What the clients' first question is answered with."""
_TEXT = "text/plain; charset=utf-8"
_FOR_BROWSERS = f"""\
llm-protocol-gateway {VERSION} is running.

/v1/models   the models that it serves
/readyz      whether it is ready to serve them
""".encode()


class OllamaPreloads:
    """For /api/chat and /api/generate (`gateway.server.generation.Preloads`)."""

    def __init__(self, means: Means, *, chat: bool) -> None:
        self._means = means
        self._chat = chat

    async def answer(self, exchange: Exchange, body: bytes) -> Reply | None:
        """Raises ModelNotFound for a model that nobody has."""
        means = self._means
        asked = parse_preload(body, max_depth=means.max_depth)
        if asked is None:
            return None
        exchange.model, exchange.streams = asked.model, asked.stream
        await admit(exchange, asked, means.router.names)
        await preload(means.router, asked.model, asked.keep_alive_s)
        found = render_preload(asked, int(means.now()), chat=self._chat)
        front = exchange.front if asked.stream else None
        return exchange.answer(found, {} if front is None else {"Content-Type": front.stream_content_type})


def ollama_posts(front: OllamaChatFront, catalogue: Catalogue, means: Means) -> Mapping[str, Served]:
    """What answers the POSTs of each path."""
    show = partial(parse_show, max_depth=means.max_depth)
    return {
        "/api/show": NamedInBody(front, ModelCards(), show, catalogue, means.bodies),
        "/api/embed": embedding(EmbedFront(), means, front),
        "/api/embeddings": embedding(EmbeddingsFront(), means, front),
    }


def ollama_questions(front: OllamaChatFront, catalogue: Catalogue) -> Mapping[str, Served]:
    """What answers the GETs of each path."""
    return {
        "/api/tags": Listing(front, Tags(), catalogue.list_models),
        "/api/ps": Listing(front, RunningModels(), catalogue.list_loaded),
        "/api/version": Constant(front, VERSION_BODY),
        "/": _Root(front),
    }


class _Root:
    """What a gateway's address alone is answered with: a browser is told where to look, a client what it waits for."""

    def __init__(self, front: OllamaChatFront) -> None:
        self.front = front
        self._for_clients = Constant(front, _ALIVE, content_type=_TEXT)
        self._for_browsers = Constant(front, _FOR_BROWSERS, content_type=_TEXT)

    async def serve(self, exchange: Exchange) -> Reply:
        is_browser = "text/html" in exchange.request.headers.get("accept", "")
        return await (self._for_browsers if is_browser else self._for_clients).serve(exchange)
