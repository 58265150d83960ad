"""How well documents answer a query: scores of pairs of texts."""

from collections.abc import Mapping

from msgspec import Struct

from adapters.canonical.usage import Usage

__all__ = ["RerankRequest", "RerankResult", "RerankScore", "ScoreRequest", "ScoreResult"]


class RerankRequest(Struct, frozen=True, kw_only=True):
    """`top_n` None: all of them. `return_documents` is how the client wants its answer, which is no provider's
    business."""

    model: str
    dialect: str
    query: str
    documents: tuple[str, ...]
    top_n: int | None = None
    truncate_prompt_tokens: int | None = None
    return_documents: bool | None = None
    user: str | None = None
    request_id: str | None = None
    extras: Mapping[str, bytes] = {}


class RerankScore(Struct, frozen=True):
    """`index` is the document's place in the request."""

    index: int
    score: float


class RerankResult(Struct, frozen=True, kw_only=True):
    """Best first, not more than were asked for. `request_id` is the upstream's."""

    scores: tuple[RerankScore, ...]
    usage: Usage | None = None
    request_id: str | None = None


class ScoreRequest(Struct, frozen=True, kw_only=True):
    """Pairs of a query and a document, each by itself. Both lists are equally long."""

    model: str
    dialect: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    truncate_prompt_tokens: int | None = None
    user: str | None = None
    request_id: str | None = None
    extras: Mapping[str, bytes] = {}


class ScoreResult(Struct, frozen=True, kw_only=True):
    """In the order of the pairs."""

    scores: tuple[float, ...]
    usage: Usage | None = None
