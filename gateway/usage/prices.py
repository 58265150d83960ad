"""What tokens of a model cost, and what a usage costs. Exact: whole billionths of a dollar, no floats."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from adapters.canonical.usage import Usage
from gateway.config.prices import PriceRow

__all__ = ["Price", "PriceList", "cost_of"]

_MAX_KNOWN = 10_000
"""Names whose price is remembered; a client may make names up."""
_PICO_PER_NANO = 1000


@dataclass(frozen=True, slots=True)
class Price:
    """Each in 10^-12 dollars a token, which is 10^-6 dollars a million."""

    input: int
    output: int
    cached: int
    cache_write: int

    @staticmethod
    def of(row: PriceRow) -> "Price":
        """Prompt tokens from a cache, or written to one, cost what the others do where the row does not say."""
        cached = row.input if row.cached is None else row.cached
        cache_write = row.input if row.cache_write is None else row.cache_write
        return Price(*[round(usd * 1_000_000) for usd in (row.input, row.output, cached, cache_write)])

    @staticmethod
    def highest(prices: Iterable["Price"]) -> "Price | None":
        """The dearest of each kind; None of none."""
        rows = [(price.input, price.output, price.cached, price.cache_write) for price in prices]
        return Price(*map(max, *rows, rows[0])) if rows else None

    def at_most(self, prompt_tokens: int, output_tokens: int) -> int:
        """Billionths of a dollar for so many tokens, whatever becomes of the cache."""
        pico = prompt_tokens * max(self.input, self.cache_write) + output_tokens * self.output
        return _nano(pico)


class PriceList:
    """`rows` by `provider/model`, where `*` stands for any text. An exact name goes first, then the longest pattern."""

    def __init__(self, rows: Mapping[str, PriceRow]) -> None:
        self._exact = {name: Price.of(row) for name, row in rows.items() if "*" not in name}
        globs = sorted((name for name in rows if "*" in name), key=len, reverse=True)
        self._patterns = [
            (re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL), Price.of(rows[name])) for name in globs
        ]
        self._known: dict[str, Price | None] = {}

    def of(self, label: str) -> Price | None:
        """Of a target, as `provider/model`. None: the list does not say."""
        if label in self._known:
            return self._known[label]
        price = self._exact.get(label)
        if price is None:
            price = next((price for pattern, price in self._patterns if pattern.fullmatch(label)), None)
        if len(self._known) < _MAX_KNOWN:
            self._known[label] = price
        return price


def cost_of(usage: Usage, price: Price) -> int:
    """Billionths of a dollar. Totals are inclusive, so cached and written tokens are taken out of the prompt's."""
    prompt = usage.prompt_tokens or 0
    cached = min(usage.cached_tokens or 0, prompt)
    written = min(usage.cache_write_tokens or 0, prompt - cached)
    pico = (
        (prompt - cached - written) * price.input
        + cached * price.cached
        + written * price.cache_write
        + (usage.completion_tokens or 0) * price.output
    )
    return _nano(pico)


def _nano(pico: int) -> int:
    """Rounded up, so that what costs anything is never free."""
    return -(-pico // _PICO_PER_NANO)
