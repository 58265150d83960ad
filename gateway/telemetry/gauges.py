"""The numbers of the moment: requests, bodies, targets with their breakers, engines."""

from collections.abc import Callable, Iterable, Iterator

from gateway.routing.health import Health
from gateway.telemetry import names
from gateway.telemetry.names import Name
from gateway.telemetry.series import Gauge
from providers.abilities import Measured
from providers.base import Provider

__all__ = ["engine_gauges", "gauge", "target_gauges"]


def gauge(name: Name, value: float, labels: tuple[tuple[str, str], ...] = ()) -> Gauge:
    return Gauge(name.name, name.unit, name.help, value, labels)


def target_gauges(health: Health, clock: Callable[[], float]) -> Iterator[Gauge]:
    """Of each target that was asked."""
    now = clock()
    for record in health:
        labels = ((names.PROVIDER, record.target.provider.name), (names.UPSTREAM_MODEL, record.target.model))
        state = ((names.STATE, record.breaker.state(now).value),)
        yield gauge(names.BREAKER_STATE, 1, (*labels, *state))
        yield gauge(names.TARGET_IN_FLIGHT, record.in_flight, labels)
        yield gauge(names.PAUSED, record.pause_s(now), labels)


def engine_gauges(providers: Iterable[Provider]) -> Iterator[Gauge]:
    """Of each model of a provider that runs its own engine, of which there is one for all processes."""
    for provider in providers:
        if not isinstance(provider, Measured):
            continue
        for measure in provider.measures():
            labels = ((names.PROVIDER, provider.name), (names.UPSTREAM_MODEL, measure.model))
            name, what = f"{names.ENGINE.name}.{measure.name}", measure.name.replace("_", " ")
            text = f"{names.ENGINE.help}: {what}."
            yield Gauge(name, names.ENGINE.unit, text, measure.value, labels, measure.grows, shared=True)
