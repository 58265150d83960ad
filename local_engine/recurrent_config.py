"""The shapes of recurrent layers: what they keep of a sequence instead of keys and values. Imports no torch."""

from dataclasses import dataclass

__all__ = ["RecurrentConfig", "ShortConvConfig"]

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

    def problem(self, num_layers: int) -> str | None:
        """One line naming the first impossible value, or None."""
        return _problem(self.layers, num_layers, self.taps)


RecurrentConfig = ShortConvConfig


def _problem(layers: frozenset[int], num_layers: int, taps: int) -> str | None:
    if not layers < frozenset(range(num_layers)):
        return f"{len(layers)} recurrent layers of {num_layers}, expected that some of the model's have attention"
    return None if 2 <= taps <= 64 else f"the convolution reads {taps} positions, expected 2 to 64"
