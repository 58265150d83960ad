"""What is known about a model by its name: window, inputs, tools, reasoning, sampling, structured output, prices.

The data are files, one a family, in `families/`; a name that none of them knows passes through as it is. Hosts may put
their own words before a name (`us.anthropic.`, `models/`) and versions behind it (`-20250929`, `-v1:0`, `-latest`).
Knows no provider: what a host takes of all this is the provider's row.
"""

import re
from functools import cache, lru_cache
from importlib.resources import files

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

__all__ = [
    "FORCED_TOOL",
    "JSON_OBJECT",
    "JSON_SCHEMA",
    "LongPrices",
    "ModelFacts",
    "Prices",
    "facts_of",
    "families",
    "priced_types",
]

JSON_SCHEMA = "json_schema"
JSON_OBJECT = "json_object"
FORCED_TOOL = "forced_tool"


class LongPrices(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every token costs once the prompt has more than `above` of them."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None


class Prices(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars for a million tokens of text, at the standard tier. None: not stated."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    long: LongPrices | None = None


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None: not known, so nothing is refused for it.

    `context` and `max_output` are tokens. `inputs` are kinds beside text: image, audio, video, pdf. `sampling` are the
    canonical names of the sampling parameters that it takes. `structured_output` is what it enforces: a JSON Schema,
    JSON of any shape, or a schema as the parameters of a tool that it must call.
    """

    name: str
    """What it is called, as a regular expression."""
    family: str = ""
    owner: str = ""
    context: int | None = None
    max_output: int | None = None
    inputs: tuple[str, ...] | None = None
    tools: bool | None = None
    reasoning: bool | None = None
    always_reasons: bool = False
    """It can't be told not to."""
    sampling: tuple[str, ...] | None = None
    structured_output: str | None = None
    prices: Prices | None = None
    sold_by: tuple[str, ...] = ()
    """The types of providers that take these prices; other hosts of the model have their own."""


class _Family(Struct, frozen=True, forbid_unknown_fields=True):
    family: str
    owner: str
    as_of: str
    sold_by: tuple[str, ...]
    models: tuple[ModelFacts, ...]


_decode = Decoder(_Family).decode
_BEFORE = r"(?:^|[/.])"
_BEHIND = r"(?=$|[-@:_](?:\d{2,}|v\d|latest|preview|exp|instruct|it\b))"


@cache
def families() -> tuple[ModelFacts, ...]:
    """Every row of every file."""
    rows: list[ModelFacts] = []
    for file in sorted(files("providers.models").joinpath("families").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".json"):
            found = _decode(file.read_bytes())
            rows += [
                replace(row, family=found.family, owner=found.owner, sold_by=found.sold_by) for row in found.models
            ]
    return tuple(rows)


def priced_types() -> frozenset[str]:
    """The types of providers for whose models prices are published."""
    return frozenset([kind for row in families() if row.prices is not None for kind in row.sold_by])


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], ModelFacts], ...]:
    return tuple([(re.compile(f"{_BEFORE}(?:{row.name}){_BEHIND}"), row) for row in families()])


@lru_cache(maxsize=4096)
def facts_of(model: str) -> ModelFacts | None:
    """The longest name that matches; None for a model that no file knows."""
    best: ModelFacts | None = None
    length = 0
    for pattern, row in _patterns():
        found = pattern.search(model.lower())
        if found is not None and found.end() - found.start() > length:
            best, length = row, found.end() - found.start()
    return best
