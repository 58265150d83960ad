"""The gateway's books: what each request may take, and what each attempt used and cost."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from adapters.canonical.request import Request
from adapters.canonical.usage import Usage, tier_of
from gateway.alerts.budgets import BudgetAlerts
from gateway.globs import matches
from gateway.keys.client_key import Account, ClientKey
from gateway.limits.limiter import Limiter, Obstacle, Refusal
from gateway.limits.rules import NO_RULES, Rules
from gateway.limits.scope import Demand, Scope
from gateway.limits.spending import Spending, SpentBefore
from gateway.routing.attempt import Attempt, AttemptKind, Outcome
from gateway.routing.names import Names
from gateway.routing.route import Route
from gateway.usage.charge import Charge
from gateway.usage.end_users import EndUsers, end_user
from gateway.usage.estimate import estimated_usage, output_tokens, prompt_tokens, with_prompt, with_uncounted
from gateway.usage.ledger import Ledger
from gateway.usage.prices import Price, PriceBook, cost_of
from gateway.usage.row import UsageRow
from gateway.usage.units import Units, units_of

__all__ = ["Accounts", "key_scopes", "scopes_of"]

_MAX_KNOWN = 10_000
_NO_USAGE = Usage()
_NO_HEADERS: Mapping[str, str] = {}
_ANSWERED, _FAILED, _LACKING, _SHADOW = Outcome.ANSWERED, Outcome.FAILED, Outcome.LACKING, AttemptKind.SHADOW


class _Known(Struct, frozen=True):
    """What limits a key's requests for a model."""

    key: ClientKey | None
    """As it was: what it may use can change while the gateway runs."""
    team: str
    per_user: "tuple[_PerUser, ...]"
    scopes: tuple[Scope, ...]
    counts_tokens: bool
    route: Route | None
    """None where no tokens are counted, or no model is named."""
    prices: tuple[Price, ...]
    """Of all targets that may answer, where they are known; none where no money is counted."""


class Accounts:
    """`models` are the rules of public names, all clients together. `now` gives Unix seconds.

    `ledger` None: nothing is kept. `alerts` None: nobody is told of budgets.
    """

    def __init__(
        self,
        limiter: Limiter,
        models: Mapping[str, Rules],
        prices: PriceBook,
        ledger: Ledger | None,
        *,
        now: Callable[[], float],
        alerts: BudgetAlerts | None = None,
        spent: SpentBefore | None = None,
    ) -> None:
        self.limiter = limiter
        self.spent = None if spent is None else Spending(spent)
        """What a scope has spent, as the database knows it; None: nobody does."""
        self._alerts = alerts
        self.ledger = ledger
        self._models = models
        self._prices = prices
        self._now = now
        self._users = EndUsers(now)
        self._known: dict[tuple[str | None, str], _Known] = {}

    async def open(
        self,
        key: ClientKey | None,
        model: str,
        request: object,
        names: Names,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Charge | Refusal:
        """Takes what a request needs. `model` is its public name, `names` tells where that may go. `headers` are the
        client's, in lower case.

        `request` None: it spends nothing that could be counted.
        """
        known = self._known.get((None if key is None else key.id, model))
        if known is None or (known.key is not key and known.key != key):
            known = await self._know(key, model, names)
        scopes, user = known.scopes, ""
        if known.per_user:
            user = end_user(request, headers)
            scopes += tuple([each.scope(self._users.counted(each.name, user)) for each in known.per_user])
        if not scopes:
            return Charge(None, model, request, known.team)
        counts = known.counts_tokens and request is not None
        found = await self.limiter.reserve(_demand(known, scopes, request) if counts else Demand(scopes))
        if isinstance(found, Refusal):
            if self._alerts is not None and found.obstacle is Obstacle.BUDGET:
                self._alerts.refused(found.scope)
            return found
        return Charge(found, model, request, known.team, user)

    def attempt_ended(self, attempt: Attempt) -> None:
        """Comes before whoever reads the attempt's cost. Called on the hot path."""
        if attempt.outcome is _LACKING:
            return
        charge, usage = attempt.progress.charge, attempt.usage
        if usage is None and charge is not None:
            attempt.estimate = usage = _estimate(attempt, charge)
        elif usage is not None and charge is not None and usage.prompt_tokens is None:
            usage = with_prompt(usage, charge.request)
        elif usage is not None and attempt.outcome is not _ANSWERED and attempt.guard is not None:
            attempt.estimate = usage = with_uncounted(usage, attempt.guard.uncounted_chars)
        if usage is not None:
            price = self._prices.of(attempt.target.label)
            if price is not None:
                attempt.cost_nano_usd = cost_of(usage, price)
            if charge is not None and attempt.kind is not _SHADOW:  # a copy is the operator's own
                charge.add(usage, attempt.cost_nano_usd)
                if self._alerts is not None and attempt.cost_nano_usd:
                    known = self._known.get((attempt.progress.key, charge.model))
                    self._alerts.used(known.scopes if known is not None else ())
        if charge is not None and type(charge.request) is not Request and attempt.outcome is not _FAILED:
            self._add_units(attempt, charge)  # also where the client left: the provider may go on and bill it
        if self.ledger is not None:
            self.ledger.add(_row(attempt, charge, usage or _NO_USAGE, self._now()))

    def _add_units(self, attempt: Attempt, charge: Charge) -> None:
        units, price = attempt.progress.units or units_of(charge.request), self._prices.of(attempt.target.label)
        cost = None if units is None or price is None else price.of_units(units)
        if cost is not None:
            attempt.cost_nano_usd = (attempt.cost_nano_usd or 0) + cost
            charge.add(_NO_USAGE, cost)

    async def aclose(self) -> None:
        """Writes what waits."""
        await self.limiter.aclose()
        if self.ledger is not None:
            await self.ledger.aclose()

    async def _know(self, key: ClientKey | None, model: str, names: Names) -> "_Known":
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        scopes = scopes_of(key, model, names.alias_of(model), self._models)
        per_user = _per_user(key)
        rules: list[Scope | Rules] = [*scopes, *(each.rules for each in per_user)]
        counts_money = any(one.budget is not None for one in rules)
        counts_tokens = counts_money or any(one.tpm is not None for one in rules)
        route = await names.resolve(model) if counts_tokens and model else None
        targets = route.answering if counts_money and route is not None else ()
        prices = [price for target in targets if (price := self._prices.of(target.label)) is not None]
        team = "" if key is None or key.team is None else key.team.id
        place = None if key is None else key.id, model
        found = self._known[place] = _Known(key, team, per_user, scopes, counts_tokens, route, tuple(prices))
        return found


def scopes_of(key: ClientKey | None, model: str, alias: str | None, models: Mapping[str, Rules]) -> tuple[Scope, ...]:
    """Whatever limits a request of this key for this model, which stands behind the alias."""
    found = [] if key is None else key_scopes(key, model)
    if alias is not None and alias in models:
        of_name = models[alias].scope(f"model:{alias}", f"the model '{alias}'", model=alias)
        found += [of_name] if of_name is not None else []
    return tuple(found)


def key_scopes(key: ClientKey, model: str | None) -> list[Scope]:
    """Those of the key and of its team, for a model; None: for all that they name. Without end users."""
    found = _scopes(key.account, model, f"key:{key.id}", "this key", key=key.id)
    if key.team is not None:
        found += _scopes(key.team.account, model, f"team:{key.team.id}", "this key's team", team=key.team.id)
    return [scope for scope in found if scope is not None]


def _demand(known: _Known, scopes: tuple[Scope, ...], request: object) -> Demand:
    """What a request may take of these limits at most."""
    if known.route is not None and isinstance(request, Request):
        request = known.route.shaped(request)
    prompt, output, nano_usd = prompt_tokens(request), output_tokens(request), 0
    units = tier = None
    if not isinstance(request, Request):
        units = units_of(request)
    elif request.service_tier is not None:
        tier = tier_of(request.service_tier)
    for price in known.prices:
        if tier is not None:
            price = price.at_tier(tier)
        most = price.at_most(prompt, output)
        if units is not None:
            most += price.of_units(units) or 0
        if most > nano_usd:
            nano_usd = most
    return Demand(scopes, prompt, output, nano_usd)


def _scopes(
    account: Account, model: str | None, name: str, label: str, *, key: str | None = None, team: str | None = None
) -> list[Scope | None]:
    found = [account.rules.scope(name, label, key=key, team=team)]
    for glob, rules in account.per_model:
        if model is None or matches((glob,), model):
            label_of_model = f"{label}'s use of '{glob}'"
            found.append(rules.scope(f"{name}:model:{glob}", label_of_model, key=key, team=team, model=glob))
    return found


class _PerUser(Struct, frozen=True):
    """What each end user of an account may use; `name` is the account's."""

    name: str
    rules: Rules
    key: str | None = None
    team: str | None = None

    def scope(self, user: str) -> Scope:
        found = self.rules.scope(f"{self.name}:user:{user}", "this user", key=self.key, team=self.team, user=user)
        assert found is not None  # there are rules
        return found


def _per_user(key: ClientKey | None) -> tuple[_PerUser, ...]:
    if key is None:
        return ()
    found = [_PerUser(f"key:{key.id}", key.account.per_user, key=key.id)]
    if key.team is not None:
        found.append(_PerUser(f"team:{key.team.id}", key.team.account.per_user, team=key.team.id))
    return tuple([each for each in found if each.rules != NO_RULES])


def _estimate(attempt: Attempt, charge: Charge) -> Usage | None:
    """What an upstream that did not say how much must have used. None for one that failed before its first output."""
    if (
        charge.request is None
        or isinstance(charge.request, Units)
        or (attempt.outcome is Outcome.FAILED and attempt.first_output is None)
    ):
        return None
    return estimated_usage(charge.request, attempt.guard.uncounted_chars if attempt.guard is not None else 0)


def _row(attempt: Attempt, charge: Charge | None, usage: Usage, now: float) -> UsageRow:
    progress = attempt.progress
    if attempt.error is not None:
        status = attempt.error.code or attempt.error.type
    else:
        status = "ok" if attempt.outcome is _ANSWERED else attempt.outcome
    ended = attempt.began if attempt.ended is None else attempt.ended
    first = attempt.first_output
    return UsageRow(
        now,
        progress.request_id or "",
        progress.key or "",
        charge.model if charge is not None else progress.model or "",
        attempt.target.provider.name,
        attempt.target.model,
        attempt.kind,
        status,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.estimated,
        attempt.cost_nano_usd,
        int((ended - attempt.began) * 1000),
        None if first is None else int((first - attempt.began) * 1000),
        charge.team if charge is not None else "",
        charge.user if charge is not None else "",
    )
