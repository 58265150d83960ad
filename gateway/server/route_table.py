"""From `models:` and `reliability:` of run.yaml to routes: which targets stand behind a name, and in which order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from adapters.canonical.errors import ContentRefused, ContextOverflow
from gateway.config import Config, ProviderConfig
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.models import Alias
from gateway.routing.breaker import BreakerRules
from gateway.routing.conditions import conditions_of
from gateway.routing.defaults import Defaults, DefaultsError
from gateway.routing.health import Health
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.route import Detours, Route, Shadow, Strategy, Target
from gateway.routing.router import RoutingRules
from gateway.routing.strategies import Latency, LeastBusy, Sticky, Weighted
from providers.base import Provider

__all__ = ["build_names", "routing_rules"]


def routing_rules(config: Config) -> RoutingRules:
    breaker = config.reliability.breaker
    return RoutingRules(
        attempts=config.reliability.retry.attempts,
        max_wait_s=config.reliability.retry.max_wait_s,
        total_s=config.reliability.timeouts.total_s,
        completions_as_chat=config.server.completions_as_chat,
        breaker=BreakerRules(failures=breaker.failures, window_s=breaker.window_s, open_s=breaker.open_s),
    )


def build_names(
    config: Config,
    providers: Mapping[str, Provider],
    lists: ModelLists,
    health: Health,
    *,
    clock: Callable[[], float],
    random: Callable[[], float],
) -> Names:
    """All names. `health` is what strategies read. Raises ValueError, naming the place in the file."""
    rules: dict[str, ProviderRules] = {}
    for name, provider in providers.items():
        entry = config.providers.get(name)
        nearest = (entry.unsupported_params if entry is not None else None) or config.server.unsupported_params
        rules[name] = ProviderRules(provider, drops_unsupported=nearest == "drop")
    strategies: Mapping[str, Strategy | None] = {
        "ordered": None,
        "weighted": Weighted(random),
        "least_busy": LeastBusy(health, random),
        "latency": Latency(health, random, clock),
        "sticky": Sticky(random),
    }
    table = _Table(config.providers, rules, strategies)
    return Names(rules, {name: table.route(name, alias) for name, alias in config.models.items()}, lists)


class _Table:
    def __init__(
        self,
        entries: Mapping[str, ProviderConfig],
        rules: Mapping[str, ProviderRules],
        strategies: Mapping[str, Strategy | None],
    ) -> None:
        self._entries = entries
        self._rules = rules
        self._strategies = strategies

    def route(self, name: str, alias: Alias) -> Route:
        """The alias's route; targets of providers that are off are left out."""
        targets: list[Target] = []
        for row in alias.targets:
            target = self._target(row.use, alias)
            if target is not None:
                when = None if row.when is None else conditions_of(row.when.header, row.when.metadata, row.when.key)
                targets.append(replace(target, weight=row.weight, tags=frozenset(row.tags), when=when))
        shadow = self._target(alias.shadow.use, alias) if alias.shadow is not None else None
        detours: Detours = {
            ContextOverflow: self._targets(alias.on_context_overflow, alias),
            ContentRefused: self._targets(alias.on_content_filter, alias),
        }
        on_failure = self._targets(alias.on_failure, alias)
        strategy = self._strategies[alias.strategy]
        if not targets:
            targets, on_failure, strategy = list(on_failure), (), None
        try:
            return Route(
                tuple(targets),
                Defaults(alias.defaults) if alias.defaults else None,
                strategy=strategy,
                on_failure=on_failure,
                detours=detours if any(detours.values()) else None,
                shadow=Shadow(shadow, alias.shadow.percent / 100) if alias.shadow and shadow else None,
                hedge_s=alias.hedge_s,
                max_tokens=alias.max_tokens,
            )
        except DefaultsError as error:
            raise ValueError(f"models.{name}.{error}") from error

    def _targets(self, uses: Sequence[str], alias: Alias) -> tuple[Target, ...]:
        found = [self._target(use, alias) for use in uses]
        return tuple([target for target in found if target is not None])

    def _target(self, use: str, alias: Alias) -> Target | None:
        """None: its provider is off."""
        provider, _, model = use.partition("/")
        if provider not in self._rules:
            return None
        target = self._rules[provider].target(*_without_adapter(self._entries.get(provider), model))
        if alias.unsupported_params is not None:
            target = replace(target, drops_unsupported=alias.unsupported_params == "drop")
        return target


def _without_adapter(entry: ProviderConfig | None, model: str) -> tuple[str, str | None]:
    """A local model's name and the adapter after its last colon, where that is one."""
    base, _, adapter = model.rpartition(":")
    if isinstance(entry, LocalProvider) and base in entry.models and adapter in entry.models[base].adapters:
        return base, adapter
    return model, None
