"""What one request has reserved, what its attempts used, and its one settlement."""

from adapters.canonical.usage import Usage
from gateway.limits.limiter import Grant, Standing

__all__ = ["Charge"]


class Charge:
    """Whoever owns the request's end calls `settle`, on every way out; only the first call counts.

    `request` is what was asked (for estimates), None where it spends nothing; `model` the public name of its model,
    `team` that of the client's team, `user` its end user where they are counted, or "".
    """

    __slots__ = ("_grant", "cost_nano_usd", "model", "request", "standing", "team", "tokens", "user")

    def __init__(self, grant: Grant | None, model: str, request: object, team: str = "", user: str = "") -> None:
        self._grant = grant
        self.standing: Standing | None = None if grant is None else grant.standing
        """What is left of the client's limits; None where it has none."""
        self.model = model
        self.request = request
        self.team = team
        self.user = user
        self.tokens = 0
        self.cost_nano_usd: int | None = None
        """None: no price is known."""

    def add(self, usage: Usage, cost_nano_usd: int | None) -> None:
        """What an attempt used."""
        tokens = usage.total_tokens
        if tokens is not None and tokens > 0:  # upstreams say all kinds of numbers
            self.tokens += tokens
        if cost_nano_usd is not None:
            self.cost_nano_usd = (self.cost_nano_usd or 0) + cost_nano_usd

    def settle(self) -> None:
        if self._grant is not None:
            self._grant.settle(self.tokens, self.cost_nano_usd or 0)
