"""What a client is told about the speed and the cost of its own request, where it asks with `x-gateway-metrics: true`.

In the header of that name: `queue_ms=0.4, ttft_ms=212.3, tokens_per_s=83.1, cost_usd=0.00042`, as far as it is known
when headers go out. A stream of server-sent events ends with a comment that holds all of it.
"""

from typing import TYPE_CHECKING

from gateway.limits.scope import NANO

if TYPE_CHECKING:
    from gateway.server.exchange import Exchange

__all__ = ["METRICS_HEADER", "metrics_comment", "request_metrics"]

METRICS_HEADER = "x-gateway-metrics"


def request_metrics(exchange: "Exchange", now: float) -> str:
    """`now` is of the exchange's clock."""
    return ", ".join(f"{name}={value}" for name, value in _known(exchange, now))


def metrics_comment(exchange: "Exchange", now: float) -> bytes:
    """The same as a comment between frames, which clients pass over."""
    return f": {METRICS_HEADER} {request_metrics(exchange, now)}\n\n".encode()


def _known(exchange: "Exchange", now: float) -> list[tuple[str, float | str]]:
    progress, charge = exchange.progress, exchange.charge
    known: list[tuple[str, float | str]] = []
    if progress is None:
        return known
    if progress.called is not None:
        known.append(("queue_ms", _rounded((progress.called - exchange.began) * 1000)))
    if exchange.first_output is not None:
        known.append(("ttft_ms", _rounded((exchange.first_output - exchange.began) * 1000)))
        usage = progress.usage
        tokens = usage.completion_tokens if usage is not None else None
        if tokens:
            first = exchange.first_output if exchange.streams else progress.called
            counted = tokens - 1 if exchange.streams else tokens  # those that came after the first output
            if first is not None and now > first and counted:
                known.append(("tokens_per_s", _rounded(counted / (now - first))))
    if charge is not None and charge.cost_nano_usd is not None:
        known.append(("cost_usd", f"{charge.cost_nano_usd / NANO:.9f}".rstrip("0").rstrip(".")))
    return known


def _rounded(value: float) -> float:
    return int(value * 10) / 10
