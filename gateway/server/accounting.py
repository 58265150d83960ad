"""Puts the gateway's books together: rules and prices of run.yaml, the limiter, and where usage is kept."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.alerts.budgets import BudgetAlerts
from gateway.config import Config
from gateway.config.sections.auth import Key
from gateway.config.sections.state import Shared
from gateway.globs import matches
from gateway.keys.client_key import Account, ClientKey, Team
from gateway.limits.in_process import InProcessLimiter
from gateway.limits.limiter import Limiter
from gateway.limits.rules import NO_RULES, Rules
from gateway.limits.scope import Scope
from gateway.limits.spending import SpentBefore
from gateway.routing.wildcards import PublicNames
from gateway.server.log import Log
from gateway.usage.accounts import Accounts
from gateway.usage.ledger import Ledger
from gateway.usage.prices import PriceList, PublishedPrices
from gateway.usage.row import UsageRow

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["build_accounts", "client_key"]

_LEASE_MARGIN_S = 300.0
"""What a request may take beyond its whole deadline: a client that reads slowly."""


def build_accounts(
    config: Config,
    stores: Callable[[], Awaitable["Stores"]],
    log: Log,
    *,
    clock: Callable[[], float],
    now: Callable[[], float],
    token: Callable[[], str],
    limiter: Limiter | None = None,
    alerts: BudgetAlerts | None = None,
) -> Accounts | None:
    """None where nobody asks: no keys, no prices, and no limits of models. `stores` opens the database.

    `limiter` is one to go on counting with.

    Raises ValueError for an address that is none, and ImportError where the extra for Redis is missing.
    """
    models = {name: Rules.of(alias.limits, alias.budget) for name, alias in config.models.items()}
    models = {name: rules for name, rules in models.items() if rules != NO_RULES}
    if not config.keeps_usage and not models:
        return None

    spent_before = _spent_before(stores, PublicNames(config.models, config.providers))

    async def sink(rows: Sequence[UsageRow]) -> None:
        await (await stores()).usage.add(rows)

    if config.run.shared is None:
        if not isinstance(limiter, InProcessLimiter):
            limiter = InProcessLimiter(clock, now)
        limiter.ask_for_spent(spent_before)
    else:
        limiter = _shared_limiter(config, config.run.shared, log, spent_before, clock=clock, now=now, token=token)
    if alerts is not None:
        alerts.ask_for_spent(spent_before)
    ledger = Ledger(sink, log.write) if config.keeps_usage else None
    types = {name: entry.type for name, entry in config.providers.items()}
    prices = PriceList(config.prices) if config.run.prices is not None else PublishedPrices(types)
    return Accounts(limiter, models, prices, ledger, now=now, alerts=alerts, spent=spent_before)


def client_key(key: Key, teams: Mapping[str, Team]) -> ClientKey:
    """A key of run.yaml, without its secret."""
    return ClientKey(key.id, Account.of(key), None if key.team is None else teams[key.team], admin=key.admin)


def _spent_before(stores: Callable[[], Awaitable["Stores"]], public: PublicNames) -> SpentBefore:
    """What the sums in the database say."""

    async def spent(scope: Scope, since: int) -> int:
        exact = None if scope.model is None or "*" in scope.model else scope.model
        usage = (await stores()).usage
        rows = await usage.spent(since, key=scope.key, team=scope.team, end_user=scope.user, model=exact)
        if scope.model is None:
            return sum(nano for _, nano in rows)
        if scope.key is None and scope.team is None:  # all that was asked under a public name
            return sum(nano for name, nano in rows if (asked := public.of(name)) and asked[0] == scope.model)
        return sum(nano for name, nano in rows if matches((scope.model,), name))

    return spent


def _shared_limiter(
    config: Config,
    shared: Shared,
    log: Log,
    spent_before: SpentBefore,
    *,
    clock: Callable[[], float],
    now: Callable[[], float],
    token: Callable[[], str],
) -> Limiter:
    try:
        from gateway.limits.redis_limiter import RedisLimiter
    except ImportError as error:
        raise ImportError("shared: Redis needs an extra: pip install 'llm-protocol-gateway[redis]'") from error
    try:
        return RedisLimiter(
            shared.url.get_secret_value(),
            clock=clock,
            now=now,
            token=token,
            lease_s=config.reliability.timeouts.total_s + _LEASE_MARGIN_S,
            log=log.write,
            spent_before=spent_before,
        )
    except ValueError as error:
        raise ValueError("shared.url: expected redis://HOST:PORT/DATABASE or rediss://...") from error
