"""Counts what ends: requests by route, model, provider, key and team, and calls of targets. Gauges are asked for when
read.

Labels are bounded: routes, providers, keys and teams are the gateway's own names; a model is counted under the name
that the client asked for only if a target of it was found; and past MAX_SERIES sets of labels everything is OTHER.
"""

from collections.abc import Callable, Iterable

from adapters.canonical.usage import Usage
from gateway.routing.attempt import Attempt
from gateway.server.exchange import Exchange
from gateway.telemetry import names
from gateway.telemetry.series import MAX_SERIES, OTHER, AttemptSeries, Gauge, RequestSeries, Snapshot

__all__ = ["Gauges", "Metrics", "time_per_token"]

Gauges = Callable[[], Iterable[Gauge]]


class Metrics:
    """Of one process."""

    def __init__(self) -> None:
        self.gauges: list[Gauges] = []
        """They tell the numbers of the moment."""
        self._requests: dict[tuple[str, str, str, str, str], RequestSeries] = {}
        self._attempts: dict[tuple[str, str], AttemptSeries] = {}
        self._left_out = 0

    def snapshot(self) -> Snapshot:
        """What was counted until now; it shares its numbers with this object, so encode or render it at once."""
        gauges = [gauge for told in self.gauges for gauge in told()]
        if self._left_out:
            name = names.SERIES_LEFT_OUT
            gauges.append(Gauge(name.name, name.unit, name.help, self._left_out, counter=True))
        return Snapshot(self._requests, self._attempts, gauges)

    def request_ended(self, exchange: Exchange, route: str) -> None:
        progress = exchange.progress
        target = progress.target if progress is not None else None
        key = exchange.key
        labels = (
            route,
            (exchange.model or "") if target is not None or (progress and progress.cache == "hit") else "",
            target.provider.name if target is not None else "",
            key.id if key is not None else "",
            key.team.id if key is not None and key.team is not None else "",
        )
        series = self._requests.get(labels) or self._new_series(labels)
        error = exchange.error
        ending = (exchange.status, "" if error is None else type(error).__name__)
        series.ended[ending] = series.ended.get(ending, 0) + 1
        series.duration.observe(exchange.ended - exchange.began)
        if progress is None:
            return
        if progress.cache is not None:
            series.cache[progress.cache] = series.cache.get(progress.cache, 0) + 1
        if progress.called is not None:
            series.queue.observe(progress.called - exchange.began)
        usage = progress.usage
        if exchange.streams and exchange.first_output is not None:
            series.ttft.observe(exchange.first_output - exchange.began)
            per_token = time_per_token(exchange, usage)
            if per_token is not None:
                series.tpot.observe(per_token)
        if usage is not None:
            if usage.prompt_tokens is not None:
                series.prompt.observe(usage.prompt_tokens)
            if usage.completion_tokens is not None:
                series.completion.observe(usage.completion_tokens)
            if usage.cached_tokens:
                series.cached_tokens += usage.cached_tokens
            if usage.cache_write_tokens:
                series.cache_write_tokens += usage.cache_write_tokens
            if usage.reasoning_tokens:
                series.reasoning_tokens += usage.reasoning_tokens
        if exchange.cost_usd is not None:
            series.cost_usd += exchange.cost_usd

    def attempt_ended(self, attempt: Attempt) -> None:
        target = (attempt.target.provider.name, attempt.target.model)
        series = self._attempts.get(target)
        if series is None:
            if len(self._attempts) >= MAX_SERIES:
                target = (target[0], OTHER)
            series = self._attempts.setdefault(target, AttemptSeries())
        error = attempt.error
        ending = (attempt.kind, attempt.outcome, "" if error is None else type(error).__name__)
        series.ended[ending] = series.ended.get(ending, 0) + 1
        if attempt.guard is not None:
            series.undeclared_calls += attempt.guard.undeclared_calls
        if attempt.ended is not None:
            series.duration.observe(attempt.ended - attempt.began)

    def _new_series(self, labels: tuple[str, str, str, str, str]) -> RequestSeries:
        if len(self._requests) >= MAX_SERIES:
            self._left_out += 1
            labels = (labels[0], OTHER, OTHER, OTHER, OTHER)
        return self._requests.setdefault(labels, RequestSeries())


def time_per_token(exchange: Exchange, usage: Usage | None) -> float | None:
    """Seconds between two tokens of a stream that came whole; None where nobody can tell."""
    if usage is None or exchange.first_output is None or exchange.error is not None:
        return None
    after_first = (usage.completion_tokens or 0) - 1
    return (exchange.ended - exchange.first_output) / after_first if after_first > 0 else None
