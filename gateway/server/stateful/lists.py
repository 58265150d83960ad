"""What the paths of kept things share: pages with cursors, what the query includes, and the answer."""

from collections.abc import Collection, Sequence

import orjson

from adapters.canonical.errors import InvalidRequest
from adapters.openai.responses.kept import shown_item
from adapters.openai.responses.vocabulary import INCLUDE
from gateway.http.request import Request
from gateway.storage.records import Page, PageOf

__all__ = ["included_in", "list_body", "list_of_items", "page_in"]

_MOST = 100
_ORDERS = {"desc": True, "asc": False}


def page_in(request: Request, *, order: str = "desc") -> Page:
    """`order` is the one where the client names none. Raises InvalidRequest, naming the parameter."""
    query = request.query
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= _MOST):
        raise InvalidRequest.at("limit", f"expected a number from 1 to {_MOST}")
    wanted = query.get("order", order)
    if wanted not in _ORDERS:
        raise InvalidRequest.at("order", f"expected {' or '.join(_ORDERS)}")
    return Page(query.get("after") or None, int(limit[:4]), _ORDERS[wanted])


def list_body(objects: Sequence[bytes], ids: Sequence[str], *, has_more: bool) -> bytes:
    """`objects` are raw JSON, `ids` their ids."""
    return orjson.dumps(
        {
            "object": "list",
            "data": [orjson.Fragment(one) for one in objects],
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": has_more,
        }
    )


def list_of_items(page: PageOf, include: Collection[str]) -> bytes:
    """A list of items of the Responses API."""
    shown = [shown_item(item.raw, include) for item in page.items]
    return list_body(shown, [item.id for item in page.items], has_more=page.has_more)


def included_in(request: Request) -> Collection[str]:
    """Raises InvalidRequest for a value that is none."""
    found = [*request.query.all("include"), *request.query.all("include[]")]
    for value in found:
        if value not in INCLUDE:
            raise InvalidRequest.at("include", f"expected one of {', '.join(sorted(INCLUDE))}")
    return found
