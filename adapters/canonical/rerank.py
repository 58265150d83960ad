"""How well documents answer a query: scores of pairs of texts."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.usage import Usage

__all__ = ["RerankRequest", "RerankResult", "RerankScore", "ScoreRequest", "ScoreResult", "ranked"]


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


def ranked(request: RerankRequest, scores: Sequence[RerankScore]) -> tuple[RerankScore, ...]:
    """Scores of an upstream, best first, not more than were asked for.

    Raises BadUpstreamResponse for scores of documents that there are not, for two of one, and for too few.
    """
    documents = len(request.documents)
    for each in scores:
        if not 0 <= each.index < documents:
            raise BadUpstreamResponse(f"the upstream sent no score of document {each.index}")
    if len({each.index for each in scores}) != len(scores):
        raise BadUpstreamResponse("the upstream scored a document twice")
    wanted = min(documents, request.top_n or documents)
    if len(scores) < wanted:
        raise BadUpstreamResponse(f"the upstream sent {len(scores)} scores, expected {wanted}")
    return tuple(sorted(scores, key=lambda each: -each.score)[:wanted])
