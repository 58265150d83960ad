"""The paths that clients of Ollama know beside generation: lists of models, one model, the version, embeddings."""

from collections.abc import Callable, Mapping
from functools import partial

from adapters.ollama.embeddings import EmbeddingsFront, EmbedFront
from adapters.ollama.front import VERSION_BODY, OllamaChatFront, parse_show
from adapters.ollama.model_list import ModelCards, RunningModels, Tags
from gateway.routing import abilities
from gateway.routing.router import Router
from gateway.server.ability import Ability
from gateway.server.body import BodyReader
from gateway.server.catalogue import Catalogue
from gateway.server.listing import Constant, Listing, NamedInBody
from gateway.server.service import Served

__all__ = ["ollama_posts", "ollama_questions"]


def ollama_posts(
    front: OllamaChatFront,
    catalogue: Catalogue,
    router: Router,
    bodies: BodyReader,
    *,
    now: Callable[[], float],
    max_depth: int,
) -> Mapping[str, Served]:
    """What answers the POSTs of each path. `now` gives Unix seconds."""
    show = partial(parse_show, max_depth=max_depth)
    embed = partial(abilities.embed, router)
    names = router.names
    return {
        "/api/show": NamedInBody(front, ModelCards(), show, catalogue, bodies),
        "/api/embed": Ability(EmbedFront(), embed, names, bodies, now=now, max_depth=max_depth, front=front),
        "/api/embeddings": Ability(EmbeddingsFront(), embed, names, bodies, now=now, max_depth=max_depth, front=front),
    }


def ollama_questions(front: OllamaChatFront, catalogue: Catalogue) -> Mapping[str, Served]:
    """What answers the GETs of each path."""
    return {
        "/api/tags": Listing(front, Tags(), catalogue.list_models),
        "/api/ps": Listing(front, RunningModels(), catalogue.list_loaded),
        "/api/version": Constant(front, VERSION_BODY),
    }
