"""Tells of targets whose breaker opened, and of providers that are not there at the start: of each once an hour."""

from collections.abc import Callable
from typing import Final

from gateway.alerts.alert import Alert, Tell
from gateway.routing.health import MAX_TARGETS, TargetHealth

__all__ = ["TargetAlerts"]

_QUIET_S: Final = 3600.0


class TargetAlerts:
    """`now` gives Unix seconds."""

    def __init__(self, tell: Tell, *, now: Callable[[], float]) -> None:
        self._tell = tell
        self._now = now
        self._told: dict[str, float] = {}

    def opened(self, record: TargetHealth) -> None:
        """The breaker of this target opened, maybe again."""
        target = record.target
        fields: dict[str, object] = {"provider": target.provider.name, "model": target.model}
        self._tell_hourly("target_down", target.label, "fails, and is passed over until it answers", fields)

    def gone(self, provider: str) -> None:
        """It cannot be reached."""
        self._tell_hourly("provider_unreachable", provider, "cannot be reached", {"provider": provider})

    def _tell_hourly(self, event: str, name: str, what: str, fields: dict[str, object]) -> None:
        now = self._now()
        last = self._told.get(f"{event}:{name}")
        if last is not None and now - last < _QUIET_S:
            return
        if len(self._told) >= MAX_TARGETS:
            self._told.clear()
        self._told[f"{event}:{name}"] = now
        self._tell(Alert(event, f"{event}:{name}:{int(now)}", f"{name} {what}", fields))
