"""What is paid by something else than tokens: images, characters, seconds of sound, searches."""

from typing import Any

import orjson
from msgspec import Struct

from adapters.canonical.rerank import RerankRequest, ScoreRequest
from adapters.canonical.usage import Usage

__all__ = ["Units", "told_units", "told_usage", "units_of"]

_DOCUMENTS = 100
"""So many of a query's documents are one search, as Cohere and Bedrock count them."""


class Units(Struct, frozen=True):
    images: int = 0
    characters: int = 0
    seconds: float = 0.0
    searches: int = 0


def units_of(request: object) -> Units | None:
    """What a request uses by itself; None: it is paid by its tokens alone."""
    match request:
        case Units():
            return request
        case RerankRequest():
            return Units(searches=-(-len(request.documents) // _DOCUMENTS))
        case ScoreRequest():
            sizes = [request.queries.count(query) for query in set(request.queries)]
            return Units(searches=sum(-(-size // _DOCUMENTS) for size in sizes))
        case _:
            return None


def told_units(answer: bytes) -> Units | None:
    """What an answer of OpenAI's paths for images and transcripts tells; None: nothing."""
    found = _object(answer)
    usage = found.get("usage")
    seconds = usage.get("seconds") if isinstance(usage, dict) else None
    seconds = found.get("duration") if seconds is None else seconds
    if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
        return Units(seconds=seconds)
    images = found.get("data")
    return Units(images=len(images)) if isinstance(images, list) else None


def told_usage(answer: bytes) -> Usage | None:
    """The tokens that such an answer tells of."""
    usage = _object(answer).get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("input_tokens_details", usage.get("input_token_details"))
    parts = details if isinstance(details, dict) else {}
    told = Usage(
        prompt_tokens=_count(usage.get("input_tokens")),
        completion_tokens=_count(usage.get("output_tokens")),
        prompt_text_tokens=_count(parts.get("text_tokens")),
        prompt_image_tokens=_count(parts.get("image_tokens")),
        prompt_audio_tokens=_count(parts.get("audio_tokens")),
    )
    return None if told.total_tokens is None else told


def _object(answer: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
