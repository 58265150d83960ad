"""GET /admin/targets: how each target stands, as the router sees it.

Of the process that answers: with several workers, `/metrics` tells of all of them.
"""

from collections.abc import Callable

from gateway.http.answer import Reply
from gateway.routing.health import Health, TargetHealth
from gateway.server.admin.keys import answered
from gateway.server.admin.routes import AdminTable
from gateway.server.exchange import Exchange

__all__ = ["AdminTargets"]


class AdminTargets:
    """`clock` is that of `health`; `redact` hides secrets in a text."""

    def __init__(self, health: Health, *, clock: Callable[[], float], redact: Callable[[str], str]) -> None:
        self._health = health
        self._clock = clock
        self._redact = redact
        self.table: AdminTable = {"/admin/targets": {"GET": self._list}}

    async def _list(self, exchange: Exchange) -> Reply:
        now = self._clock()
        records = sorted(self._health, key=lambda record: (record.target.label, record.target.adapter or ""))
        return answered(exchange, {"object": "list", "data": [self._told(record, now) for record in records]})

    def _told(self, record: TargetHealth, now: float) -> dict[str, object]:
        target, refusal = record.target, record.refusal(now)
        whole, stream = (ttft.mean(now) for ttft in record.ttft)
        return {
            "provider": target.provider.name,
            "model": target.model,
            "adapter": target.adapter,
            "breaker": record.breaker.state(now).value,
            "refusal": None if refusal is None else self._redact(refusal),
            "pause_s": round(record.pause_s(now), 3),
            "in_flight": record.in_flight,
            "ttft_ms": {"stream": _ms(stream), "whole": _ms(whole)},
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
