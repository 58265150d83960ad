"""What only those who run the gateway may call: metrics, reload, keys, usage, targets, adapters.

The routes stand on a port of their own (`server.admin_port`), or on the main one where there is none. On either, a
gateway with keys asks for one with `admin: true`; one without keys serves this machine alone, as everywhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from adapters.canonical.errors import PermissionDenied
from gateway.http.answer import Reply
from gateway.server.exchange import Exchange
from gateway.server.routes import Handler, Route

__all__ = ["AdminTable", "admin_routes", "page_routes", "reload_table"]

AdminTable = Mapping[str, Mapping[str, Handler]]
"""Path -> method -> what serves it."""


def admin_routes(table: AdminTable) -> dict[str, Route]:
    """The routes for a `Service`, each behind the check of the key."""
    return {
        path: Route({method: partial(_for_admins, handler) for method, handler in methods.items()})
        for path, methods in table.items()
    }


def page_routes(table: AdminTable) -> dict[str, Route]:
    """The same for pages."""
    return {path: replace(route, takes_password=True) for path, route in admin_routes(table).items()}


def reload_table(reload: Callable[[], Awaitable[None]] | None) -> AdminTable:
    """POST /admin/reload; None: there is nothing to reload."""
    if reload is None:
        return {}

    async def serve(exchange: Exchange) -> Reply:
        await reload()
        return exchange.answer(b'{"status":"reloaded"}')

    return {"/admin/reload": {"POST": serve}}


async def _for_admins(handler: Handler, exchange: Exchange) -> Reply:
    if exchange.key is not None and not exchange.key.admin:
        raise PermissionDenied(
            "the admin routes need a key with admin: true, and this one has not", code="not_an_admin"
        )
    return await handler(exchange)
