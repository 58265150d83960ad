"""GET /v1/key: what limits the key that the client shows, and what its budgets have left."""

from collections.abc import Callable, Mapping

from adapters.canonical.errors import NotFound
from gateway.http.answer import Reply
from gateway.limits.scope import NANO, Scope, period_at
from gateway.server.admin.keys import answered
from gateway.server.exchange import Exchange
from gateway.server.routes import Route
from gateway.usage.accounts import Accounts, key_scopes

__all__ = ["OwnKey"]


class OwnKey:
    """`accounts` None: nothing is limited. `now` gives Unix seconds."""

    def __init__(self, accounts: Accounts | None, *, now: Callable[[], float]) -> None:
        self._accounts = accounts
        self._now = now
        self.routes: Mapping[str, Route] = {"/v1/key": Route({"GET": self._show})}

    async def _show(self, exchange: Exchange) -> Reply:
        key = exchange.key
        if key is None:
            raise NotFound("this gateway asks for no key", code="no_key")
        team = None if key.team is None else key.team.id
        limits = [await self._told(scope) for scope in key_scopes(key, None)]
        return answered(exchange, {"object": "key", "id": key.id, "team": team, "limits": limits})

    async def _told(self, scope: Scope) -> dict[str, object]:
        return {
            "of": "key" if scope.team is None else "team",
            "model": scope.model,
            "rpm": scope.rpm,
            "tpm": scope.tpm,
            "parallel": scope.parallel,
            "budget": await self._budget(scope),
        }

    async def _budget(self, scope: Scope) -> dict[str, object] | None:
        """Raises NotReady where the database does not tell."""
        budget = scope.budget
        if budget is None or self._accounts is None or self._accounts.spent is None:
            return None
        start, end = period_at(budget.per, self._now())
        spent = await self._accounts.spent(scope, start)
        return {
            "usd": budget.nano_usd / NANO,
            "per": budget.per,
            "spent_usd": spent / NANO,
            "left_usd": max(budget.nano_usd - spent, 0) / NANO,
            "until": None if budget.per == "ever" else end,
        }
