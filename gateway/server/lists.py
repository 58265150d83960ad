"""Lists with cursors, as OpenAI's API has them: which part the query asks for, and the list's body."""

from collections.abc import Sequence

import orjson
from aiohttp import web

from adapters.canonical.errors import InvalidRequest
from gateway.storage.records import Page

__all__ = ["list_body", "page_in"]

_MOST = 100
_ORDERS = {"desc": True, "asc": False}


def page_in(request: web.BaseRequest, *, order: str = "desc") -> Page:
    """`order` is the one where the client names none. Raises InvalidRequest, naming the parameter."""
    query = request.query
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= _MOST):
        raise InvalidRequest(f"limit: expected a number from 1 to {_MOST}", param="limit")
    wanted = query.get("order", order)
    if wanted not in _ORDERS:
        raise InvalidRequest(f"order: expected {' or '.join(_ORDERS)}", param="order")
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
