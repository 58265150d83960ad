"""What differs between Anthropic's models, wherever they run, as data: which fields some of them refuse.

Source: the profiles of 2026-11. A name that is not read here counts as a model that takes everything.
"""

import re
from functools import lru_cache

from msgspec import Struct

__all__ = ["ModelTraits", "is_known", "traits_of"]

_NAME = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?:[0-3]|instant)")
_FIRST_WITHOUT_KNOBS = {"opus": (4, 7), "sonnet": (5, 0), "fable": (0, 0), "mythos": (0, 0)}
"""From this version on a family takes neither sampling parameters nor a budget of thinking tokens."""
_FIRST_ADAPTIVE = (4, 6)
_NEVER_FORCED = frozenset(("fable", "mythos"))


class ModelTraits(Struct, frozen=True, kw_only=True):
    """`sampling`: takes temperature, top_p and top_k. `budgets`: takes a budget of thinking tokens. `adaptive`: decides
    itself how much to think. `forced_choice`: can be made to call a tool."""

    sampling: bool = True
    budgets: bool = True
    adaptive: bool = True
    forced_choice: bool = True


_ANY = ModelTraits()
_OLD = ModelTraits(adaptive=False)


@lru_cache(maxsize=256)
def traits_of(model: str) -> ModelTraits:
    """The traits of a model by its name, which hosts may prefix (`anthropic/claude-opus-5`)."""
    if _OLD_NAME.search(model):
        return _OLD
    found = _NAME.search(model)
    if found is None:
        return _ANY
    family, version = found[1], (int(found[2]), int(found[3] or 0))
    first = _FIRST_WITHOUT_KNOBS.get(family)
    knobs = first is None or version < first
    return ModelTraits(
        sampling=knobs,
        budgets=knobs,
        adaptive=version >= _FIRST_ADAPTIVE,
        forced_choice=family not in _NEVER_FORCED,
    )


@lru_cache(maxsize=256)
def is_known(model: str) -> bool:
    """Whether the name tells the traits; else they are those of a model that takes everything."""
    return (_OLD_NAME.search(model) or _NAME.search(model)) is not None
