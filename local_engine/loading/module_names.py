"""What adapters call the linear layers of a model: by the names of transformers' class, where ours are others."""

from collections.abc import Iterable, Mapping

from local_engine.loading.plain_source import HfName, HfRows

__all__ = ["ModuleNames"]

_WEIGHT = ".weight"


class ModuleNames:
    """prefixes, places: `hf_prefixes` and `hf_places` of the model's `Architecture`."""

    def __init__(self, prefixes: Mapping[str, str], places: Mapping[str, HfName | HfRows]) -> None:
        self._prefixes = prefixes
        self._rows = {
            ours.removesuffix(_WEIGHT): at
            for ours, at in places.items()
            if isinstance(at, HfRows) and ours.endswith(_WEIGHT)
        }
        self._ours = {at.name.removesuffix(_WEIGHT): ours for ours, at in self._rows.items()}

    def ours(self, module: str) -> str:
        """Our name of a module that an adapter names."""
        prefix = self._prefix([module])
        name = module if prefix is None else self._prefixes[prefix] + module.removeprefix(prefix)
        return self._ours.get(name, name)

    def theirs(self, ours: str, modules: Iterable[str]) -> str:
        """What an adapter that has these modules calls, or would call, the one of our name."""
        name = self._rows[ours].name.removesuffix(_WEIGHT) if ours in self._rows else ours
        prefix = self._prefix(modules)
        return name if prefix is None else prefix + name.removeprefix(self._prefixes[prefix])

    def rows(self, ours: str) -> HfRows | None:
        """The order of the rows of a module there; None is ours."""
        return self._rows.get(ours)

    def _prefix(self, modules: Iterable[str]) -> str | None:
        return next((prefix for module in modules for prefix in self._prefixes if module.startswith(prefix)), None)
