"""Which targets of a name a request may go to at all: those whose conditions hold, and that have every tag it asks for.

A client asks for tags in the header `x-gateway-tags` (`eu, fast`), which always holds: where no target has the tags,
the request is refused. Names whose targets have tags also read `metadata.tags` of a chat's body, the same text or a
list of texts; they are for the gateway then, and no upstream sees them.
"""

from collections.abc import Mapping, Sequence

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request
from gateway.routing.progress import Progress
from gateway.routing.route import Target

__all__ = ["TAGS_HEADER", "eligible", "wanted_tags", "with_conditions_met", "without_tags"]

TAGS_HEADER = "x-gateway-tags"
_METADATA = "metadata.tags"
_NONE: frozenset[str] = frozenset()


def wanted_tags(progress: Progress, metadata: bytes | None) -> frozenset[str]:
    """`metadata` is a raw JSON object, None: it is not read."""
    header = progress.headers.get(TAGS_HEADER)
    tags = _NONE if header is None else _split(header)
    if metadata is None:
        return tags
    found = orjson.loads(metadata).get("tags")
    if isinstance(found, str):
        return tags | _split(found)
    if isinstance(found, list) and all(isinstance(tag, str) for tag in found):
        return tags.union(*map(_split, found))
    if found is not None:
        raise InvalidRequest.at(_METADATA, "expected a text or a list of texts")
    return tags


def without_tags(request: Request) -> Request:
    """The request as upstreams get it, once its tags were read: what else is in `metadata` stays."""
    if request.metadata is None:
        return request
    rest = orjson.loads(request.metadata)
    if "tags" not in rest:
        return request
    del rest["tags"]
    return replace(request, metadata=orjson.dumps(rest) if rest else None)


def eligible(targets: Sequence[Target], progress: Progress) -> tuple[Target, ...]:
    """Those with all the tags of `progress`; the others are passed over. Raises InvalidRequest where none is left."""
    tags = progress.tags
    kept = tuple([target for target in targets if tags <= target.tags])
    if not kept:
        param = TAGS_HEADER if progress.headers.get(TAGS_HEADER) else _METADATA
        wanted = ", ".join(sorted(tags))
        raise InvalidRequest.at(param, f"no target of the model '{progress.model}' has all of: {wanted}")
    for target in targets:
        if missing := tags - target.tags:
            progress.passed_over.append((target, f"it lacks the tag {', '.join(sorted(missing))}"))
    return kept


def with_conditions_met(
    targets: Sequence[Target], progress: Progress, metadata: bytes | None, *, others_follow: bool
) -> tuple[Target, ...]:
    """Those whose conditions hold; the others are passed over. Raises InvalidRequest where none is left and none
    follows them."""
    values: Mapping[str, object] = {} if metadata is None else orjson.loads(metadata)
    kept: list[Target] = []
    missed: dict[str, None] = {}
    for target in targets:
        unmet = None if target.when is None else target.when.unmet(progress.headers, values, progress.key_metadata)
        if unmet is None:
            kept.append(target)
        else:
            missed[unmet] = None
            progress.passed_over.append((target, f"its condition on {unmet} does not hold"))
    if not kept and not others_follow:
        told = f"no target of the model '{progress.model}' is for this request; it depends on {', '.join(missed)}"
        raise InvalidRequest(told, param="model")
    return tuple(kept)


def _split(text: str) -> frozenset[str]:
    return frozenset(tag for each in text.split(",") if (tag := each.strip()))
