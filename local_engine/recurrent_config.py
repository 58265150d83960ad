"""The shapes of recurrent layers: what they keep of a sequence instead of keys and values. Imports no torch."""

from dataclasses import dataclass

__all__ = ["GatedDeltaConfig", "Mamba2Config", "RecurrentConfig", "ShortConvConfig"]

_Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ShortConvConfig:
    """Short convolutions between two gates, channel by channel (LFM2, Liquid AI 2025).

    layers: indices of those that have no attention. taps: positions that one output reads, its own included.
    """

    layers: frozenset[int]
    channels: int
    taps: int
    bias: bool = False

    @property
    def state_shapes(self) -> _Shapes:
        """Of a sequence in one layer: the last inputs of the convolution."""
        return ((self.taps - 1, self.channels),)

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        return _problem(self.taps)


@dataclass(frozen=True, slots=True)
class GatedDeltaConfig:
    """Gated delta rules behind a short convolution (Yang, Kautz, Hatamizadeh 2024; Qwen3-Next).

    key_heads: of queries and of keys, of `key_dim` numbers each. value_heads: of `value_dim`, as many to each key head.
    tiled: value head i reads key head i modulo their number, as in GGUFs of Qwen3.5; else i divided by the share.
    """

    layers: frozenset[int]
    taps: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    tiled: bool = False

    @property
    def values(self) -> int:
        """Numbers of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Those of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.values

    @property
    def state_shapes(self) -> _Shapes:
        """Of a sequence in one layer: the last inputs of the convolution, and a matrix a value head."""
        return ((self.taps - 1, self.channels), (self.value_heads, self.key_dim, self.value_dim))

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value, high in (
            ("number of key heads", self.key_heads, 1 << 12),
            ("number of value heads", self.value_heads, 1 << 12),
            ("size of a key head", self.key_dim, 1 << 12),
            ("size of a value head", self.value_dim, 1 << 12),
        ):
            if not 1 <= value <= high:
                return f"the {name} of recurrent layers is {value}, expected 1 to {high}"
        if self.value_heads % self.key_heads:
            return f"{self.value_heads} value heads of recurrent layers do not divide over {self.key_heads} key heads"
        return _problem(self.taps)


@dataclass(frozen=True, slots=True)
class Mamba2Config:
    """Mamba-2's state spaces behind a short convolution (Dao and Gu 2024; Granite 4, IBM 2025).

    heads: of head_dim numbers each. groups: of heads that share their directions, of state_size numbers each.
    bias, conv_bias: of the projections, and of the convolution. norm_eps: of the norm behind the gate; None: no norm.
    """

    layers: frozenset[int]
    taps: int
    heads: int
    head_dim: int
    groups: int
    state_size: int
    norm_eps: float | None
    bias: bool = False
    conv_bias: bool = True

    @property
    def width(self) -> int:
        """Numbers of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Those of the convolution: inputs, and both directions of each group."""
        return self.width + 2 * self.groups * self.state_size

    @property
    def state_shapes(self) -> _Shapes:
        """Of a sequence in one layer: the last inputs of the convolution, and a matrix a head."""
        return ((self.taps - 1, self.channels), (self.heads, self.state_size, self.head_dim))

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value in (
            ("number of heads", self.heads),
            ("size of a head", self.head_dim),
            ("number of groups", self.groups),
            ("size of a state", self.state_size),
        ):
            if not 1 <= value <= 1 << 12:
                return f"the {name} of recurrent layers is {value}, expected 1 to {1 << 12}"
        if self.heads % self.groups:
            return f"{self.heads} heads of recurrent layers do not divide over {self.groups} groups"
        return _problem(self.taps)


RecurrentConfig = ShortConvConfig | GatedDeltaConfig | Mamba2Config


def _problem(taps: int) -> str | None:
    return None if 2 <= taps <= 64 else f"the convolution reads {taps} positions, expected 2 to 64"
