"""`gateway keys`: makes, lists and revokes keys in the database that run.yaml names. No gateway needs to run."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from gateway.cli.configuration import add_config, load
from gateway.cli.failure import CommandFailed
from gateway.cli.table import print_table

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.keys.key_administration import KeyAdministration
    from gateway.keys.stored import NewKey
    from gateway.storage.place import Place
    from gateway.storage.records import KeptKey

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "create, list and revoke keys of clients"
EXAMPLE = "gateway keys create team-b --models 'fast,openai/*' --rpm 600 --usd 50 --per month"

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key and print its secret, which is shown this once")
    create.add_argument("id", help="name of the key, as it stands in logs")
    create.add_argument("--models", metavar="NAMES", default="*", help="names it may ask for, with commas (default: *)")
    create.add_argument("--rpm", type=int, metavar="N", help="requests a minute")
    create.add_argument("--tpm", type=int, metavar="N", help="tokens a minute")
    create.add_argument("--parallel", type=int, metavar="N", help="requests at the same time")
    create.add_argument("--usd", type=float, metavar="X", help="dollars that it may spend in one period")
    create.add_argument(
        "--per", choices=("hour", "day", "week", "month"), default="day", help="the period (default: day)"
    )
    create.add_argument("--days", type=float, metavar="N", help="days that it is good for (default: for ever)")
    create.add_argument("--admin", action="store_true", help="it may call the admin routes")
    create.set_defaults(act=_create)
    listing = actions.add_parser("list", help="list the keys")
    listing.set_defaults(act=_list)
    revoke = actions.add_parser("revoke", help="let a key in no more")
    revoke.add_argument("id")
    revoke.set_defaults(act=_revoke)
    for action in (create, listing, revoke):
        add_config(action, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    act: Callable[[Config, argparse.Namespace], None] = arguments.act
    act(load(arguments.config), arguments)
    return 0


def _create(config: "Config", arguments: argparse.Namespace) -> None:
    new = _new_key(arguments)
    if new.budget is not None and not _prices_are_known(config):
        raise CommandFailed("a budget needs to know what tokens cost, which nobody publishes: name a file in 'prices'")
    secret, _ = _administer(config, lambda keys: keys.create(new))
    print(f"gateway: made the key {new.id}; its secret is shown this once", file=sys.stderr)
    print(secret)


def _prices_are_known(config: "Config") -> bool:
    """By a file, or by what the makers of models publish."""
    from providers.models.facts import priced_types

    return bool(config.prices) or not priced_types().isdisjoint([one.type for one in config.providers.values()])


def _list(config: "Config", arguments: argparse.Namespace) -> None:
    async def every(keys: "KeyAdministration") -> "list[KeptKey]":
        found: list[KeptKey] = []
        has_more = True
        while has_more:
            page, has_more = await keys.list(found[-1].id if found else None, 1000)
            found += page
        return found

    from gateway.keys.stored import described

    now = time.time()
    rows = []
    for key in _administer(config, every):
        models = described(key)["models"]
        names = ",".join(map(str, models)) if isinstance(models, list) else ""
        rows.append((key.id, _state(key, now), _day(key.created), _day(key.expires), names))
    print_table("Keys", ("id", "state", "created", "expires", "models"), rows)
    if not rows:
        print("gateway: no keys were made; those of run.yaml are not listed here", file=sys.stderr)


def _revoke(config: "Config", arguments: argparse.Namespace) -> None:
    _administer(config, lambda keys: keys.revoke(arguments.id))
    print(f"gateway: revoked {arguments.id}; a gateway that runs lets it in for 10 s more at most", file=sys.stderr)


def _new_key(arguments: argparse.Namespace) -> "NewKey":
    """Raises CommandFailed."""
    import orjson

    from adapters.canonical.errors import InvalidRequest
    from gateway.keys.stored import parse_new_key

    limits = {name: getattr(arguments, name) for name in ("rpm", "tpm", "parallel")}
    given = {
        "id": arguments.id,
        "models": [name.strip() for name in arguments.models.split(",")],
        "admin": arguments.admin,
        "limits": limits if any(value is not None for value in limits.values()) else None,
        "budget": None if arguments.usd is None else {"usd": arguments.usd, "per": arguments.per},
        "days": arguments.days,
    }
    try:
        return parse_new_key(orjson.dumps(given))
    except InvalidRequest as error:
        raise CommandFailed(error.message) from None


def _administer(config: "Config", act: "Callable[[KeyAdministration], Awaitable[T]]") -> T:
    """What `act` gives, with the database open. Raises CommandFailed."""
    from adapters.canonical.errors import GatewayError
    from gateway.storage.place import MemoryPlace, SchemaMismatch, parse_place

    auth = config.run.auth
    if auth is None or auth.hash_secret is None:
        raise CommandFailed("keys can be made once run.yaml has auth.hash_secret")
    place = parse_place(None if config.run.storage is None else config.run.storage.url.get_secret_value())
    if isinstance(place, MemoryPlace):
        raise CommandFailed("storage.url is memory, so that keys would not last; name a database")
    try:
        taken = [key.id for key in auth.keys]
        return asyncio.run(_with_database(place, act, hash_secret=auth.hash_secret.get_secret_value(), taken=taken))
    except (GatewayError, SchemaMismatch) as error:
        raise CommandFailed(str(error)) from None


async def _with_database(
    place: "Place", act: "Callable[[KeyAdministration], Awaitable[T]]", *, hash_secret: str, taken: Sequence[str]
) -> T:
    from gateway.keys.key_administration import KeyAdministration
    from gateway.storage.bounds import Bounds
    from gateway.storage.opening import Stores, open_stores

    stores = await open_stores(place, Bounds(float("inf"), 2**63), time.time)

    async def opened() -> Stores:
        return stores

    try:
        return await act(KeyAdministration(opened, hash_secret, now=time.time, taken=taken))
    finally:
        await stores.aclose()


def _state(key: "KeptKey", now: float) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and now >= key.expires else "good"


def _day(unix_s: int | None) -> str:
    return "" if unix_s is None else datetime.fromtimestamp(unix_s, UTC).date().isoformat()
