"""What a request takes of its client's limits before it runs, and how a client is told that there is nothing left."""

from adapters.canonical.errors import InsufficientQuota, RateLimited
from gateway.limits.limiter import Obstacle, Refusal
from gateway.routing.names import Names
from gateway.server.exchange import Exchange

__all__ = ["reserve"]


async def reserve(exchange: Exchange, model: str | None, request: object, names: Names) -> None:
    """Reserves what the request needs; the exchange's end settles it. `model` None: it names none. `request` None: it
    spends nothing that could be counted.

    Raises RateLimited, InsufficientQuota, and ModelNotFound.
    """
    accounts = exchange.accounts
    if accounts is None:
        return
    public = model or ""
    if model is not None and model not in names.aliases:
        public = await names.public_name(model)
    found = await accounts.open(exchange.key, public, request, names, headers=exchange.request.headers)
    if isinstance(found, Refusal):
        exchange.standing = found.standing
        raise _refused(found)
    exchange.standing = found.standing
    exchange.charge = found


def _refused(refusal: Refusal) -> RateLimited:
    scope, wait_s = refusal.scope, refusal.retry_after_s
    match refusal.obstacle:
        case Obstacle.REQUESTS:
            why = f"{scope.label} is limited to {scope.rpm} requests a minute"
        case Obstacle.TOKENS:
            why = f"{scope.label} is limited to {scope.tpm} tokens a minute"
        case Obstacle.PROMPT:
            why = f"the prompt is longer than the {scope.tpm} tokens a minute that {scope.label} is limited to"
            return RateLimited(why, should_retry=False)
        case Obstacle.PARALLEL:
            why = f"{scope.label} is limited to {scope.parallel} requests at the same time"
        case Obstacle.BUDGET:
            per = scope.budget.per if scope.budget is not None else ""
            period = "" if per == "ever" else f" of this {per}"
            why = f"{scope.label} has spent its budget{period}, or has too little of it left for this request"
            return InsufficientQuota(why, retry_after_s=None if per == "ever" else wait_s, should_retry=False)
    return RateLimited(f"{why}; try again in {wait_s or 0:.3g} s", retry_after_s=wait_s)
