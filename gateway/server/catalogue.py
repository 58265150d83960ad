"""What can be called, and whether it can answer now: GET /v1/models and the reasons behind /readyz."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from adapters.canonical.abilities import EMBED, GENERATE, RANK
from adapters.canonical.errors import InvalidRequest, ModelNotFound
from adapters.front import ListedModel, ModelListForm
from adapters.nearest_name import did_you_mean
from gateway.keys.client_key import ClientKey
from gateway.routing.names import ModelLists, Names
from gateway.routing.route import Target
from gateway.routing.wildcards import filled, filling
from gateway.server.model_extension import extension_of
from providers.base import ModelEntry, Provider, ReadinessState
from providers.models.facts import facts_of

__all__ = ["Catalogue"]

_GENERATES = frozenset((GENERATE,))
_RANKS = re.compile(r"rerank")
_EMBEDS = re.compile(r"embed|minilm|(?<![a-z0-9])(?:bge|gte|e5)-")
Lists = Mapping[str, Mapping[str, ModelEntry] | None]
"""The models of each provider, None where they can't be told."""


class Catalogue:
    """`local` are the models of this machine, and whether each loads at start; `providers` stand in the order of their
    listing."""

    def __init__(
        self,
        names: Names,
        lists: ModelLists,
        providers: Mapping[str, Provider],
        *,
        local: Mapping[tuple[str, str], bool],
        started_at: int,
    ) -> None:
        self._names = names
        self._lists = lists
        self._providers = providers
        self._local = local
        self._started_at = started_at

    async def list_models(self, key: ClientKey | None, form: ModelListForm) -> bytes:
        """The aliases, `provider/model` of every list that can be fetched, and what aliases with a star make of the
        lists; only what the key may use."""
        lists = await self._lists.all()
        rows = [
            _alias_row(alias, route.targets, lists, self._started_at) for alias, route in self._names.aliases.items()
        ]
        for provider in self._providers:
            for entry in (lists[provider] or {}).values():
                rows.append(self._model_row(entry, f"{provider}/{entry.id}", provider))
        rows += self._behind_stars(lists)
        return form.render_models([row for row in rows if key is None or key.may_use(row.id)])

    def _behind_stars(self, lists: Lists) -> Iterator[ListedModel]:
        """What can be listed of the aliases with a star: the models that their first target's star may be."""
        for alias, route in self._names.wildcards.items():
            first = next((target for target in route.targets if "*" in target.model), None)
            for model in (lists.get(first.provider.name) or {}) if first is not None else ():
                star = filling(first.model, model) if first is not None else None
                if star is not None and self._names.alias_of(name := alias.replace("*", star)) == alias:
                    targets = filled(route, star).targets
                    yield _alias_row(name, targets, lists, self._started_at)

    async def list_loaded(self, key: ClientKey | None, form: ModelListForm) -> bytes:
        """The models of this machine that are in memory; only what the key may use."""
        rows: list[ListedModel] = []
        for provider, model in self._local:
            readiness = self._providers[provider].readiness(model)
            if readiness.memory is None:
                continue
            listed = await self._lists.of(provider)
            entry = (listed or {}).get(model) or ModelEntry(id=model)
            rows.append(with_fields(self._model_row(entry, f"{provider}/{model}", provider), memory=readiness.memory))
        return form.render_models([row for row in rows if key is None or key.may_use(row.id)])

    async def show_model(self, name: str, key: ClientKey | None, form: ModelListForm) -> bytes:
        """One model by any name that a request may use. Raises ModelNotFound."""
        public = await self._names.public_name(name)
        if key is not None and not key.may_use(name, public):
            raise ModelNotFound(f"the model '{name}' does not exist, or you have no access to it", param="model")
        if self._names.alias_of(public) is not None:
            targets = (await self._names.resolve(public)).targets
            lists = {first.provider.name: await self._lists.of(first.provider.name) for first in targets[:1]}
            return form.render_model(_alias_row(name, targets, lists, self._started_at))
        provider, _, model = public.partition("/")
        listed = await self._lists.of(provider)
        if listed is not None and model not in listed:
            raise ModelNotFound(f"the model '{name}' does not exist, or you have no access to it", param="model")
        entry = listed[model] if listed is not None else ModelEntry(id=model)
        return form.render_model(self._model_row(entry, name, provider))

    def unnamed(self, key: ClientKey | None) -> str:
        """The model of a client that names none, as those of llama.cpp: the first public name, or else the first model
        of this machine, that generates and that the key may use. Raises InvalidRequest where there is none."""
        named = ((alias, route.targets) for alias, route in self._names.aliases.items())
        here = ((f"{name}/{model}", (Target(self._providers[name], model),)) for name, model in self._local)
        for name, targets in (*named, *here):
            if (key is None or key.may_use(name)) and targets and GENERATE in _abilities(targets[0]):
                return name
        raise InvalidRequest.at("model", "this field is required: no model stands in for one that is not named")

    def hint(self, name: str, key: ClientKey | None) -> str:
        """`, did you mean 'x'?` for a name that can't be used: the most like it that the key may use, or nothing."""
        known = [*self._names.aliases, *(f"{provider}/{model}" for provider, model in self._local)]
        return "" if name in known else did_you_mean(name, [one for one in known if key is None or key.may_use(one)])

    async def is_loading(self, name: str) -> bool:
        """Whether a target behind this name is being loaded."""
        try:
            route = await self._names.resolve(name)
        except ModelNotFound:
            return False
        states = [target.provider.readiness(target.model).state for target in route.targets]
        return ReadinessState.LOADING in states

    def _model_row(self, entry: ModelEntry, public: str, provider: str) -> ListedModel:
        target = Target(self._providers[provider], entry.id)
        return _row(entry, public, provider, self._started_at, (target,))

    def obstacles(self) -> list[str]:
        """Why the gateway is not ready: the aliases (without aliases: the local models) that no target can answer."""
        if self._names.aliases:
            found = ((name, _obstacle(route.answering)) for name, route in self._names.aliases.items())
        else:
            found = (
                (f"{provider}/{model}", _obstacle((Target(self._providers[provider], model),)))
                for (provider, model), at_start in self._local.items()
                if at_start
            )
        return [f"{name}: {why}" for name, why in found if why is not None]


def _obstacle(targets: Iterable[Target]) -> str | None:
    """Why none of the targets can answer, None where one can."""
    reasons: list[str] = []
    for target in targets:
        readiness = target.provider.readiness(target.model)
        if readiness.state is ReadinessState.READY or readiness.on_demand:
            return None
        reasons.append(readiness.reason or readiness.state.value)
    return "; ".join(reasons) or "its providers are off"


def _alias_row(alias: str, targets: Sequence[Target], lists: Lists, started_at: int) -> ListedModel:
    """An alias has the window of its first target, and its kinds of input."""
    listed = (lists.get(targets[0].provider.name) or {}).get(targets[0].model) if targets else None
    entry = ModelEntry(id=alias)
    if listed is not None:
        entry = replace(listed, id=alias, created=None, owned_by=None)
    return _row(entry, alias, "gateway", started_at, targets)


def _row(entry: ModelEntry, public: str, owner: str, created: int, targets: Sequence[Target]) -> ListedModel:
    facts = facts_of(targets[0].model) if targets else None
    context = entry.context or (facts.context if facts is not None else None)
    return ListedModel(
        id=public,
        created=entry.created if entry.created is not None else created,
        owned_by=entry.owned_by or owner,
        context=context,
        abilities=_abilities(targets[0]) if entry.abilities is None and targets else entry.abilities or _GENERATES,
        gateway=extension_of(targets, context, entry),
    )


def _abilities(target: Target) -> frozenset[str]:
    """What a model can do whose provider does not say: by how such models are called, then by what the target takes."""
    name = target.model.lower()
    if _RANKS.search(name):
        return frozenset((RANK,))
    if _EMBEDS.search(name):
        return frozenset((EMBED,))
    capabilities = target.provider.capabilities(target.model)
    return _GENERATES if capabilities.messages or capabilities.prompts else frozenset((EMBED,))
