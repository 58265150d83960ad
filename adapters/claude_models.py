"""What differs between Anthropic's models, wherever they run, as data: which fields some of them refuse.

Source: Anthropic's pages on thinking and on moving to each model, 2026-11. A name that is not read here counts as a
model that takes everything.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

__all__ = ["ModelTraits", "is_known", "traits_of"]

_NAME = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(?:[0-3]|instant)")
_FIRST_WITHOUT_KNOBS = {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 5), "fable": (0, 0), "mythos": (0, 0)}
"""From this version on a family takes neither sampling parameters nor a budget of thinking tokens."""
_FIRST_ADAPTIVE = (4, 6)
_FIRST_UNFORCED = {"opus": (5, 5), "sonnet": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
"""From this version on a family can't be made to call a tool."""
_FIRST_BETWEEN_TOOLS = {"sonnet": (5, 5)}
"""From this version on a family has another word for thinking as little as it can."""


class ModelTraits(Struct, frozen=True, kw_only=True):
    """`sampling`: takes temperature, top_p and top_k. `budgets`: takes a budget of thinking tokens. `adaptive`: decides
    itself how much to think. `forced_choice`: can be made to call a tool. `least_thinking`: the type that turns
    thinking off, or down as far as it goes."""

    sampling: bool = True
    budgets: bool = True
    adaptive: bool = True
    forced_choice: bool = True
    least_thinking: str = "disabled"


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
    knobs = not _is_from(_FIRST_WITHOUT_KNOBS, family, version)
    return ModelTraits(
        sampling=knobs,
        budgets=knobs,
        adaptive=version >= _FIRST_ADAPTIVE,
        forced_choice=not _is_from(_FIRST_UNFORCED, family, version),
        least_thinking="between_tools" if _is_from(_FIRST_BETWEEN_TOOLS, family, version) else "disabled",
    )


def _is_from(firsts: Mapping[str, tuple[int, int]], family: str, version: tuple[int, int]) -> bool:
    first = firsts.get(family)
    return first is not None and version >= first


@lru_cache(maxsize=256)
def is_known(model: str) -> bool:
    """Whether the name tells the traits; else they are those of a model that takes everything."""
    return (_OLD_NAME.search(model) or _NAME.search(model)) is not None
