"""What tokens of a model cost, and what a usage costs. Exact: whole billionths of a dollar, no floats.

Prices are the operator's own list, or where there is none those that the makers of models publish.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Protocol

from adapters.canonical.usage import Usage
from gateway.config.prices import PriceRow
from gateway.globs import pattern_of
from gateway.usage.units import Units
from providers.models.facts import LongPrices, Prices, facts_of

__all__ = ["Price", "PriceBook", "PriceList", "PublishedPrices", "cost_of"]

_MAX_KNOWN = 10_000
"""Names whose price is remembered; a client may make names up."""
_PICO_PER_NANO = 1000
_MOST = 10**15
"""A million dollars: what an upstream says beyond it of one answer is no number to reckon with."""


@dataclass(frozen=True, slots=True)
class Price:
    """Each in 10^-12 dollars a token, which is 10^-6 dollars a million.

    `long` holds in place of all of them for a prompt of more than `above` tokens. `of_text`: sound has another price,
    which is not known. What is paid by something else than tokens is in 10^-12 dollars too: for an image, a
    character, a second, a search; None: that has no price.
    """

    input: int
    output: int
    cached: int
    cache_write: int
    cache_write_1h: int
    above: int | None = None
    long: "Price | None" = None
    of_text: bool = False
    image: int | None = None
    character: int | None = None
    second: int | None = None
    search: int | None = None
    tiers: "tuple[tuple[str, Price], ...]" = ()
    """What holds in place of it at other service tiers."""

    @staticmethod
    def of(row: PriceRow) -> "Price":
        price = _per_token(row.input or 0, row.output or 0, row.cached, row.cache_write, row.cache_write_1h)
        return replace(
            price,
            tiers=tuple([(tier.lower(), price.times(factor)) for tier, factor in row.tiers.items()]),
            image=_pico(row.image, 1),
            character=_pico(row.characters, 1_000_000),
            second=_pico(row.minute, 60),
            search=_pico(row.search, 1),
        )

    @staticmethod
    def published(prices: Prices) -> "Price":
        price = _published_per_token(prices)
        long = prices.long
        if long is None:
            return replace(price, of_text=True)
        dearer = _published_per_token(long)
        return replace(price, above=long.above, long=dearer, of_text=True)

    def times(self, factor: float) -> "Price":
        """What tokens cost at so many times the price."""
        return Price(
            input=round(self.input * factor),
            output=round(self.output * factor),
            cached=round(self.cached * factor),
            cache_write=round(self.cache_write * factor),
            cache_write_1h=round(self.cache_write_1h * factor),
        )

    def at_tier(self, tier: str | None) -> "Price":
        """Where no price of that tier is known, the standard one."""
        return next((price for name, price in self.tiers if name == tier), self)

    def for_prompt(self, tokens: int) -> "Price":
        return self.long if self.long is not None and self.above is not None and tokens > self.above else self

    def at_most(self, prompt_tokens: int, output_tokens: int) -> int:
        """Billionths of a dollar for so many tokens, whatever becomes of the cache."""
        price = self if self.long is None else self.for_prompt(prompt_tokens)
        dearest = max(price.input, price.cache_write, price.cache_write_1h)
        return -(-(prompt_tokens * dearest + output_tokens * price.output) // _PICO_PER_NANO)

    def of_units(self, units: Units) -> int | None:
        """Billionths of a dollar, rounded up. None: nothing of it has a price."""
        priced = (
            (units.images, self.image),
            (units.characters, self.character),
            (units.seconds, self.second),
            (units.searches, self.search),
        )
        pico = [ceil(count * price) for count, price in priced if count and price is not None]
        return min(-(-sum(pico) // _PICO_PER_NANO), _MOST) if pico else None


class PriceBook(Protocol):
    """What targets cost."""

    def of(self, label: str) -> Price | None:
        """Of a target, as `provider/model`. None: it is not known."""
        ...


class PriceList:
    """`rows` by `provider/model`, where `*` stands for any text. An exact name goes first, then the longest pattern."""

    def __init__(self, rows: Mapping[str, PriceRow]) -> None:
        self._exact = {name: Price.of(row) for name, row in rows.items() if "*" not in name}
        globs = sorted((name for name in rows if "*" in name), key=len, reverse=True)
        self._patterns = [(pattern_of(name), Price.of(rows[name])) for name in globs]
        self._known: dict[str, Price | None] = {}

    def of(self, label: str) -> Price | None:
        """See `PriceBook.of`."""
        if label in self._known:
            return self._known[label]
        price = self._exact.get(label)
        if price is None:
            price = next((price for pattern, price in self._patterns if pattern.fullmatch(label)), None)
        if len(self._known) < _MAX_KNOWN:
            self._known[label] = price
        return price


class PublishedPrices:
    """Those of makers for their own APIs; other hosts of a model have prices that nobody here knows.

    `types` are the types of providers, by their names.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._of_model = lru_cache(maxsize=_MAX_KNOWN)(_published)

    def of(self, label: str) -> Price | None:
        """See `PriceBook.of`."""
        provider, _, model = label.partition("/")
        return self._of_model(self._types.get(provider), model)


def _published(kind: str | None, model: str) -> Price | None:
    facts = facts_of(model)
    if facts is None or facts.prices is None or kind not in facts.sold_by:
        return None
    return Price.published(facts.prices)


def cost_of(usage: Usage, price: Price) -> int | None:
    """Billionths of a dollar, rounded up, so that what costs anything is never free.

    Totals are inclusive, so cached and written tokens are taken out of the prompt's. None: it holds sound, whose price
    is not known.
    """
    if price.of_text and (usage.prompt_audio_tokens or usage.completion_audio_tokens):
        return None
    prompt = usage.prompt_tokens or 0
    if usage.tier is not None:
        price = price.at_tier(usage.tier)
    if price.long is not None:
        price = price.for_prompt(prompt)
    pico = prompt * price.input + (usage.completion_tokens or 0) * price.output
    if usage.cached_tokens or usage.cache_write_tokens:
        cached = min(usage.cached_tokens or 0, prompt)
        written = min(usage.cache_write_tokens or 0, prompt - cached)
        pico += cached * (price.cached - price.input) + written * (price.cache_write - price.input)
        if usage.cache_write_1h_tokens:
            pico += min(usage.cache_write_1h_tokens, written) * (price.cache_write_1h - price.cache_write)
    nano = -(-pico // _PICO_PER_NANO)
    return nano if 0 <= nano <= _MOST else min(max(nano, 0), _MOST)


def _pico(usd: float | None, each: int) -> int | None:
    return None if usd is None else round(usd * 1_000_000_000_000 / each)


def _published_per_token(row: Prices | LongPrices) -> Price:
    return _per_token(row.input, row.output, row.cache_read, row.cache_write, row.cache_write_1h)


def _per_token(
    input_: float, output: float, cached: float | None, cache_write: float | None, cache_write_1h: float | None
) -> Price:
    """Prompt tokens from a cache, or written to one, cost what the others do where nothing is said of them."""
    cached = input_ if cached is None else cached
    cache_write = input_ if cache_write is None else cache_write
    cache_write_1h = cache_write if cache_write_1h is None else cache_write_1h
    pico = [round(usd * 1_000_000) for usd in (input_, output, cached, cache_write, cache_write_1h)]
    return Price(input=pico[0], output=pico[1], cached=pico[2], cache_write=pico[3], cache_write_1h=pico[4])
