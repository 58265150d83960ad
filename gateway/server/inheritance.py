"""What a reloaded gateway takes over from the one before, so that a reload costs nobody anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.fetching.guarded import GuardedFetcher
from gateway.limits.limiter import Limiter
from gateway.telemetry.metrics import Metrics
from gateway.tools.tool_servers import ToolServers
from providers.base import Provider

if TYPE_CHECKING:
    from gateway.alerts.alerts import Alerts

__all__ = ["NOTHING", "Inheritance", "unchanged_providers"]


@dataclass(frozen=True, slots=True)
class Inheritance:
    """`providers` are those whose settings are the same: their connections, models and caches stay."""

    providers: Mapping[str, Provider] = field(default_factory=dict)
    fetcher: GuardedFetcher | None = None
    limiter: Limiter | None = None
    """What counts in this process; None: the limits are shared, and counted elsewhere."""
    metrics: Metrics | None = None
    tools: ToolServers | None = None
    alerts: "Alerts | None" = None


NOTHING = Inheritance()


def unchanged_providers(old: Config, new: Config, providers: Mapping[str, Provider]) -> dict[str, Provider]:
    """Those of the old configuration that the new one would build just so."""
    for same in ("reliability.timeouts", "run.fetch", "server.request_templates"):
        if _at(old, same) != _at(new, same):
            return {}
    return {
        name: provider
        for name, provider in providers.items()
        if name in new.providers and old.providers.get(name) == new.providers[name]
    }


def _at(config: Config, path: str) -> object:
    found: object = config
    for step in path.split("."):
        found = getattr(found, step)
    return found
