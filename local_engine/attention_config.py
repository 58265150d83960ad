"""What tokens see in a model's layers, and how queries and keys turn by their positions: part of `ModelConfig`."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["AttentionKind", "QueryGrowth", "RopeConfig", "RopeScaling", "Sections", "Window"]

RopeScaling = Literal["none", "linear", "llama3", "yarn", "longrope", "proportional"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base frequency and how it is stretched beyond the trained window.

    beta_fast, beta_slow: turns within the trained window from which yarn keeps a frequency, and to which it divides it.
    truncate: yarn's ramp begins and ends at whole pairs of dimensions.
    attention_factor: what yarn and longrope multiply the turned queries and keys with.
    rotary_dim: leading dimensions of a head that turn; None is all of them.
    turning_share: of the frequencies, proportional alone: the fastest ones; the others turn nothing.
    short_factors, long_factors: what longrope divides each frequency by, in windows up to the trained one and in longer
        ones; empty where the file has them as tensors.
    mrope_sections: how many frequencies turn by time, height and width, where positions have these axes; empty else.
        mrope_interleaved: frequencies of the three take turns; else those of one axis stand side by side.
    """

    theta: float = 10000.0
    scaling: RopeScaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_context: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    rotary_dim: int | None = None
    turning_share: float = 1.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    mrope_sections: tuple[int, ...] = ()
    mrope_interleaved: bool = False

    def problem(self, head_dim: int) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, number in (
            ("theta", self.theta),
            ("factor", self.factor),
            ("low_freq_factor", self.low_freq_factor),
            ("high_freq_factor", self.high_freq_factor),
            ("attention_factor", self.attention_factor),
            ("turning_share", self.turning_share),
            *(("short_factors", number) for number in self.short_factors),
            *(("long_factors", number) for number in self.long_factors),
        ):
            if not (math.isfinite(number) and number > 0):
                return f"rope {name} is {number}, expected a positive number"
        if not 1 <= self.original_max_context <= 1 << 31:
            return f"rope original_max_context is {self.original_max_context}, expected 1 to {1 << 31}"
        turning = head_dim if self.rotary_dim is None else self.rotary_dim
        if turning % 2 or not 2 <= turning <= head_dim:
            return f"rope turns {turning} of a head's {head_dim} dimensions, expected an even number of them"
        if self.turning_share > 1:
            return f"rope turns a share of {self.turning_share}, expected at most 1"
        if self.scaling == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            return "rope high_freq_factor must exceed low_freq_factor"
        if self.scaling == "yarn" and not 2**-20 <= self.beta_slow < self.beta_fast <= 2**20:
            return f"rope beta_fast {self.beta_fast} must exceed beta_slow {self.beta_slow}"
        if self.scaling == "yarn" and self.theta <= 1:
            return f"rope theta is {self.theta}, yarn needs more than 1"
        sections = self.mrope_sections
        if sections and (len(sections) != 3 or min(sections) < 0 or sum(sections) != turning // 2):
            return f"mrope's sections are {list(sections)}, expected three that make {turning // 2} frequencies"
        for factors in (self.short_factors, self.long_factors):
            if factors and len(factors) != turning // 2:
                return f"rope has {len(factors)} factors for the {turning // 2} frequencies of {turning} dimensions"
        return None


class Sections(NamedTuple):
    """Windows that follow one another instead of sliding: a token sees those before it in its own section."""

    size: int


Window = int | Sections | None
"""What a token sees: so many tokens, itself included; those of its section; or, with None, all before it."""


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """Queries at position p are multiplied with 1 + rate * log(1 + floor((p + offset) / length))."""

    length: int
    rate: float
    offset: int = 0


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """What the layers of one kind see, and how queries and keys turn in them.

    window: tokens that a token sees, itself included; None is all before it. section: of `Sections`, in its place.
    rope: None where nothing turns. query_growth: None where queries do not grow with their position.
    head_dim, num_kv_heads: where they are not the model's; then the rope says its rotary_dim.
    keys_as_values: values are what keys are made from, before their norm and before they turn.
    unweighted_qk_norm: queries and keys that have turned are normalised head by head, without weights.
    """

    window: int | None = None
    rope: RopeConfig | None = RopeConfig()
    head_dim: int | None = None
    num_kv_heads: int | None = None
    keys_as_values: bool = False
    section: int | None = None
    query_growth: QueryGrowth | None = None
    unweighted_qk_norm: bool = False

    @property
    def reach(self) -> Window:
        """What a token sees: the window or the section."""
        return self.window if self.section is None else Sections(self.section)
