"""`gateway keys`: makes, lists, changes, rotates and revokes keys in the database that run.yaml names. No gateway needs
to run."""

import argparse
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.cli.configuration import add_config, load
from gateway.cli.failure import CommandFailed
from gateway.cli.kept import place_of, with_stores
from gateway.cli.table import print_table

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.keys.key_administration import KeyAdministration
    from gateway.keys.stored import NewKey
    from gateway.storage.opening import Stores
    from gateway.storage.records import KeptKey

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "create, list, change, rotate and revoke keys of clients"
EXAMPLE = "gateway keys create team-b --models 'fast,openai/*' --rpm 600 --usd 50 --per month"

_RATES = ("rpm", "tpm", "parallel")
_PERIODS = ("hour", "day", "week", "month", "ever")

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key and print its secret, which is shown only once")
    create.add_argument("id", help="name of the key, as it stands in logs")
    create.add_argument("--models", metavar="NAMES", default="*", help="names it may ask for, with commas (default: *)")
    create.add_argument("--team", metavar="NAME", help="one of auth.teams, whose models and limits hold as well")
    create.add_argument("--rpm", type=int, metavar="N", help="requests a minute")
    create.add_argument("--tpm", type=int, metavar="N", help="tokens a minute")
    create.add_argument("--parallel", type=int, metavar="N", help="requests at the same time")
    create.add_argument("--usd", type=float, metavar="X", help="dollars that it may spend in one period")
    create.add_argument("--per", choices=_PERIODS, default="day", help="the period (default: day)")
    create.add_argument("--days", type=float, metavar="N", help="days until it expires (default: never)")
    create.add_argument("--admin", action="store_true", help="it may call the admin routes")
    create.set_defaults(act=_create)
    listing = actions.add_parser("list", help="list the keys")
    listing.set_defaults(act=_list)
    change = actions.add_parser(
        "change",
        help="change what a key may do; 'none' takes a limit away",
        argument_default=argparse.SUPPRESS,
    )
    change.add_argument("id")
    change.add_argument("--models", metavar="NAMES", help="names it may ask for, with commas")
    change.add_argument("--team", type=_name_or_none, metavar="NAME", help="one of auth.teams")
    change.add_argument("--rpm", type=_whole_or_none, metavar="N", help="requests a minute")
    change.add_argument("--tpm", type=_whole_or_none, metavar="N", help="tokens a minute")
    change.add_argument("--parallel", type=_whole_or_none, metavar="N", help="requests at the same time")
    change.add_argument("--usd", type=_number_or_none, metavar="X", help="dollars that it may spend in one period")
    change.add_argument("--per", choices=_PERIODS, help="the period")
    change.add_argument("--days", type=_number_or_none, metavar="N", help="days until it expires, from now on")
    change.add_argument("--admin", action=argparse.BooleanOptionalAction, help="it may call the admin routes")
    change.add_argument("--blocked", action=argparse.BooleanOptionalAction, help="it lets nobody in for now")
    change.set_defaults(act=_change)
    rotate = actions.add_parser("rotate", help="give a key a new secret and print it, which is shown only once")
    rotate.add_argument("id")
    rotate.add_argument(
        "--grace", type=float, default=0.0, metavar="SECONDS", help="the old secret stays good so long (default: 0)"
    )
    rotate.set_defaults(act=_rotate)
    revoke = actions.add_parser("revoke", help="stop accepting a key")
    revoke.add_argument("id")
    revoke.set_defaults(act=_revoke)
    for action in (create, listing, change, rotate, revoke):
        add_config(action, default=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    act: Callable[[Config, argparse.Namespace], None] = arguments.act
    act(load(arguments.config), arguments)
    return 0


def _create(config: "Config", arguments: argparse.Namespace) -> None:
    new = _new_key(arguments)
    if new.budget is not None:
        _check_prices(config)
    secret, _ = _administer(config, lambda keys: keys.create(new))
    print(f"gateway: made the key {new.id}; its secret is shown only once", file=sys.stderr)
    print(secret)


def _check_prices(config: "Config") -> None:
    """A budget needs prices: of a file, or what the makers of models publish. Raises CommandFailed."""
    from providers.models.facts import priced_types

    if not config.prices and priced_types().isdisjoint([one.type for one in config.providers.values()]):
        raise CommandFailed("a budget needs to know what tokens cost, which nobody publishes: name a file in 'prices'")


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
        told = described(key)
        names = ",".join(map(str, told["models"])) if isinstance(told["models"], list) else ""
        limits, budget = told.get("limits"), told.get("budget")
        rates = " ".join(f"{name}={value}" for name, value in limits.items()) if isinstance(limits, dict) else ""
        money = f"${budget['usd']:g} a {budget['per']}" if isinstance(budget, dict) else ""
        team = str(told.get("team") or "")
        state = _state(key, now, is_blocked=told.get("blocked") is True)
        rows.append((key.id, state, _day(key.created), _day(key.expires), names, rates, money, team))
    print_table("Keys", ("id", "state", "created", "expires", "models", "limits", "budget", "team"), rows)
    if not rows:
        print("gateway: no keys were made; those of run.yaml are not listed here", file=sys.stderr)


def _change(config: "Config", arguments: argparse.Namespace) -> None:
    change = _change_of(vars(arguments))
    if not change:
        raise CommandFailed("nothing to change, expected --rpm, --usd or another option")
    if change.get("budget") is not None:
        _check_prices(config)
    _administer(config, lambda keys: keys.change(arguments.id, change))
    print(f"gateway: changed {arguments.id}; a gateway that runs knows within 10 s", file=sys.stderr)


def _rotate(config: "Config", arguments: argparse.Namespace) -> None:
    import orjson

    from adapters.canonical.errors import InvalidRequest
    from gateway.keys.stored import parse_rotation

    try:
        rotation = parse_rotation(orjson.dumps({"grace_s": arguments.grace}))
    except InvalidRequest as error:
        raise CommandFailed(error.message) from None
    secret, _ = _administer(config, lambda keys: keys.rotate(arguments.id, rotation))
    rest = f"{arguments.grace:g} s and 10 s" if arguments.grace else "10 s"
    told = f"the new secret of {arguments.id} is shown only once; a gateway that runs takes the old one for {rest} more"
    print(f"gateway: {told} at most", file=sys.stderr)
    print(secret)


def _revoke(config: "Config", arguments: argparse.Namespace) -> None:
    _administer(config, lambda keys: keys.revoke(arguments.id))
    print(f"gateway: revoked {arguments.id}; a gateway that runs lets it in for 10 s more at most", file=sys.stderr)


def _change_of(given: "dict[str, Any]") -> "dict[str, object]":
    """The options that were given, as a merge patch of the key's rules."""
    change: dict[str, object] = {name: given[name] for name in ("team", "days", "admin", "blocked") if name in given}
    if "models" in given:
        change["models"] = _names(given["models"])
    if limits := {name: given[name] for name in _RATES if name in given}:
        change["limits"] = limits
    if "usd" in given and given["usd"] is None:
        change["budget"] = None
    elif money := {name: given[name] for name in ("usd", "per") if name in given}:
        change["budget"] = money
    return change


def _new_key(arguments: argparse.Namespace) -> "NewKey":
    """Raises CommandFailed."""
    import orjson

    from adapters.canonical.errors import InvalidRequest
    from gateway.keys.stored import parse_new_key

    limits = {name: getattr(arguments, name) for name in _RATES}
    given = {
        "id": arguments.id,
        "models": _names(arguments.models),
        "team": arguments.team,
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
    auth = config.run.auth
    if auth is None or auth.hash_secret is None:
        raise CommandFailed("keys can be made once run.yaml has auth.hash_secret")
    hash_secret, taken, teams = auth.hash_secret.get_secret_value(), [key.id for key in auth.keys], auth.teams

    async def administer(stores: "Stores") -> T:
        from gateway.keys.key_administration import KeyAdministration

        async def opened() -> "Stores":
            return stores

        return await act(KeyAdministration(opened, hash_secret, now=time.time, taken=taken, teams=teams))

    return with_stores(place_of(config, "keys would not last"), administer)


def _names(words: str) -> list[str]:
    return [name.strip() for name in words.split(",")]


def _name_or_none(word: str) -> str | None:
    return None if word == "none" else word


def _whole_or_none(word: str) -> int | None:
    try:
        return None if word == "none" else int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number or none, got {word!r}") from None


def _number_or_none(word: str) -> float | None:
    try:
        return None if word == "none" else float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or none, got {word!r}") from None


def _state(key: "KeptKey", now: float, *, is_blocked: bool) -> str:
    if key.revoked is not None:
        return "revoked"
    if is_blocked:
        return "blocked"
    return "expired" if key.expires is not None and now >= key.expires else "active"


def _day(unix_s: int | None) -> str:
    return "" if unix_s is None else datetime.fromtimestamp(unix_s, UTC).date().isoformat()
