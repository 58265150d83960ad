"""/admin/keys: keys that are made, changed, rotated and revoked while the gateway runs."""

import orjson

from adapters.canonical.errors import InvalidRequest, NotFound
from gateway.http.answer import Answer, Reply
from gateway.keys.key_administration import KeyAdministration
from gateway.keys.stored import Rotation, described, parse_change, parse_new_key, parse_rotation
from gateway.server.admin.routes import AdminTable
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange

__all__ = ["AdminKeys", "query_limit"]

_PATH = "/admin/keys"
_MAX_LISTED = 1000


class AdminKeys:
    """`administration` None: run.yaml has no `auth.hash_secret`, and no key can be made."""

    def __init__(self, administration: KeyAdministration | None, bodies: BodyReader) -> None:
        self._administration = administration
        self._bodies = bodies
        self.table: AdminTable = {
            _PATH: {"POST": self._create, "GET": self._list},
            f"{_PATH}/*": {"GET": self._show, "PATCH": self._change, "POST": self._rotate, "DELETE": self._revoke},
        }

    async def _create(self, exchange: Exchange) -> Reply:
        secret, key = await self._keys().create(parse_new_key(await exchange.read(self._bodies)))
        return answered(exchange, {**described(key), "secret": secret}, status=201)

    async def _list(self, exchange: Exchange) -> Reply:
        query = exchange.request.query
        found, has_more = await self._keys().list(query.get("after"), query_limit(exchange, _MAX_LISTED))
        return answered(exchange, {"object": "list", "data": [described(key) for key in found], "has_more": has_more})

    async def _show(self, exchange: Exchange) -> Reply:
        return answered(exchange, described(await self._keys().find(exchange.path_model or "")))

    async def _change(self, exchange: Exchange) -> Reply:
        change = parse_change(await exchange.read(self._bodies))
        return answered(exchange, described(await self._keys().change(exchange.path_model or "", change)))

    async def _rotate(self, exchange: Exchange) -> Reply:
        key_id, _, action = (exchange.path_model or "").partition("/")
        if action != "rotate":
            raise NotFound(f"there is no {_PATH}/ID/{action}, expected {_PATH}/ID/rotate", code="unknown_url")
        rotation = parse_rotation(await exchange.read(self._bodies)) if exchange.request.has_body else Rotation()
        secret, key = await self._keys().rotate(key_id, rotation)
        return answered(exchange, {**described(key), "secret": secret})

    async def _revoke(self, exchange: Exchange) -> Reply:
        return answered(exchange, described(await self._keys().revoke(exchange.path_model or "")))

    def _keys(self) -> KeyAdministration:
        if self._administration is None:
            raise InvalidRequest("keys can be made once run.yaml has auth.hash_secret", code="no_hash_secret")
        return self._administration


def answered(exchange: Exchange, value: object, *, status: int = 200) -> Answer:
    """A JSON answer of an admin route."""
    return exchange.answer(orjson.dumps(value), status=status)


def query_limit(exchange: Exchange, most: int) -> int:
    """The field `limit` of the query; without it, the most. Raises InvalidRequest."""
    word = exchange.request.query.get("limit")
    if word is None:
        return most
    if not word.isascii() or not word.isdigit() or not 1 <= int(word[:9]) <= most:
        raise InvalidRequest.at("limit", f"expected a whole number from 1 to {most}")
    return int(word)
