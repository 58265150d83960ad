"""From the name that a client asks for to a route, in this order:

1. an alias of `models:`
2. `provider/model`, where what stands before the first slash is a provider
3. an alias with a star that matches it (`gateway.routing.wildcards`)
4. a bare model name that exactly one provider has (it may hold slashes and colons)
5. the same with `:adapter`, for providers that take adapters

`:latest`, which Ollama's clients append, changes nothing behind an alias or a model that takes adapters and has none
of that name.

Aliases and prefixes never fetch a model list. Lists are kept for a short time, and so is the failure to fetch one.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from adapters.canonical.errors import GatewayError, ModelNotFound
from gateway.routing.route import Route, Target
from gateway.routing.wildcards import PublicNames, filled, filling
from providers.base import ModelEntry, Provider

__all__ = ["LIST_TTL_S", "LOCAL_TTL_S", "MAX_LISTED", "ModelLists", "Names", "ProviderRules"]

LIST_TTL_S = 60.0
LOCAL_TTL_S = 1.0
"""Of models of this machine: what is known of one changes when it is loaded, and asking costs little."""
FAILURE_TTL_S = 10.0
FETCH_S = 5.0
_LATEST = "latest"
_MAX_FILLED = 1024
"""Routes of names behind a star that are remembered; a client may make names up."""
MAX_LISTED = 10_000
"""Models that are remembered of one provider; more are left out."""


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """A provider with what run.yaml says about requests to it."""

    provider: Provider
    drops_unsupported: bool = False

    def target(self, model: str, adapter: str | None = None) -> Target:
        return Target(self.provider, model, adapter, self.drops_unsupported)


@dataclass(slots=True)
class _List:
    entries: dict[str, ModelEntry] | None
    """None: it can't be fetched."""
    until: float


class ModelLists:
    """What each provider has, fetched at most once in LIST_TTL_S, or LOCAL_TTL_S where it is one of `local`. `clock`
    gives seconds of any origin."""

    def __init__(
        self, providers: Mapping[str, Provider], clock: Callable[[], float], *, local: Collection[str] = ()
    ) -> None:
        self._local = local
        self._providers = providers
        self._clock = clock
        self._lists: dict[str, _List] = {}
        self._fetches: dict[str, asyncio.Task[_List]] = {}

    async def of(self, provider: str) -> Mapping[str, ModelEntry] | None:
        """The models by name, None where the list can't be fetched."""
        known = self._lists.get(provider)
        if known is not None and self._clock() < known.until:
            return known.entries
        fetch = self._fetches.get(provider)
        if fetch is None:
            fetch = self._fetches[provider] = asyncio.create_task(self._fetch(provider))
            fetch.add_done_callback(lambda _: self._fetches.pop(provider, None))
        # A caller that leaves must not cancel the fetch that others wait for.
        return (await asyncio.shield(fetch)).entries

    async def all(self) -> Mapping[str, Mapping[str, ModelEntry] | None]:
        """The models of every provider, all asked at the same time."""
        lists = await asyncio.gather(*[self.of(name) for name in self._providers])
        return dict(zip(self._providers, lists, strict=True))

    async def aclose(self) -> None:
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    async def _fetch(self, provider: str) -> _List:
        entries: dict[str, ModelEntry] | None
        try:
            async with asyncio.timeout(FETCH_S):
                listed: Sequence[ModelEntry] = await self._providers[provider].models()
        except (GatewayError, TimeoutError):
            stale = self._lists.get(provider)
            entries, ttl_s = (stale.entries if stale is not None else None), FAILURE_TTL_S
        else:
            entries = {entry.id: entry for entry in listed[:MAX_LISTED]}
            ttl_s = LOCAL_TTL_S if provider in self._local else LIST_TTL_S
        fresh = self._lists[provider] = _List(entries, self._clock() + ttl_s)
        return fresh


class Names:
    """`aliases` map public names to routes, those with a star too; `providers` stand in the order of run.yaml."""

    def __init__(self, providers: Mapping[str, ProviderRules], aliases: Mapping[str, Route], lists: ModelLists) -> None:
        self._providers = providers
        self.aliases = {name: route for name, route in aliases.items() if "*" not in name}
        self.wildcards = {name: route for name, route in aliases.items() if "*" in name}
        """The aliases with a star; their targets may have one."""
        self._public = PublicNames(aliases, providers)
        self._filled = lru_cache(maxsize=_MAX_FILLED)(self._fill)
        self._lists = lists

    async def resolve(self, name: str) -> Route:
        """The route of a name. Raises ModelNotFound, naming it and nothing else."""
        if (route := self.aliases.get(name)) is not None:
            return route
        if (public := self._public.of(name)) is not None:
            return self._filled(*public)
        prefix, slash, model = name.partition("/")
        if slash and model and prefix in self._providers:
            return Route((await self._prefixed(self._providers[prefix], model),))
        return Route((await self._bare(name),))

    def alias_of(self, name: str) -> str | None:
        """The alias that a name is or matches; None: it is none."""
        public = self._public.of(name)
        return None if public is None else public[0]

    async def public_name(self, name: str) -> str:
        """The alias, the name that one with a star matches, or the `provider/model` that the name stands for. Raises
        ModelNotFound."""
        if (public := self._public.of(name)) is not None:
            return public[1]
        target = (await self.resolve(name)).targets[0]
        return target.label if target.adapter is None else f"{target.label}:{target.adapter}"

    def _fill(self, alias: str, name: str) -> Route:
        star = filling(alias, name) if alias in self.wildcards else None
        return self.aliases[alias] if star is None else filled(self.wildcards[alias], star)

    async def _prefixed(self, rules: ProviderRules, model: str) -> Target:
        base, colon, adapter = model.rpartition(":")
        if not colon or "adapter" not in rules.provider.capabilities(base).fields:
            return rules.target(model)
        listed = await self._lists.of(rules.provider.name)
        return _adapted(rules, listed, base, adapter) if listed is not None and base in listed else rules.target(model)

    async def _bare(self, name: str) -> Target:
        lists = {provider: entries for provider, entries in (await self._lists.all()).items() if entries is not None}
        base, _, adapter = name.rpartition(":")
        found = [
            self._providers[provider].target(name)
            for provider, entries in lists.items()
            if name in entries and not self._is_adapter(provider, entries, base)
        ]
        if not found and adapter:
            found = [
                _adapted(self._providers[provider], entries, base, adapter)
                for provider, entries in lists.items()
                if self._is_adapter(provider, entries, base)
            ]
        if len(found) == 1:
            return found[0]
        if found:
            raise ModelNotFound(
                f"the model '{name}' exists at more than one provider: ask for it as provider/{name}", param="model"
            )
        raise ModelNotFound(f"the model '{name}' does not exist, or you have no access to it", param="model")

    def _is_adapter(self, provider: str, entries: Mapping[str, ModelEntry], base: str) -> bool:
        return base in entries and "adapter" in self._providers[provider].provider.capabilities(base).fields


def _adapted(rules: ProviderRules, entries: Mapping[str, ModelEntry], base: str, adapter: str) -> Target:
    is_tag = adapter == _LATEST and f"{base}:{adapter}" not in entries
    return rules.target(base) if is_tag else rules.target(base, adapter)
