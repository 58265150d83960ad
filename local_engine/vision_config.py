"""The shape of a tower that reads images. Imports no torch."""

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["QwenTowerConfig", "VisionConfig"]


@dataclass(frozen=True, slots=True)
class QwenTowerConfig:
    """In what the towers of Qwen's generations differ. They read images of any size.

    norm: as in `BlockConfig`. mlp: its activation, and whether a gate has it.
    window: pixels a side of the squares that see themselves alone, in layers other than `whole_layers`; None: no layer
        has them.
    position_side: the learned positions are a square of so many a side, stretched over the image; 0 is none.
    stacked_layers: what the patches are after each of these is added to the residual behind the decoder's first layers,
        one each (deepstack).
    """

    norm: Literal["rms", "layer_bias"]
    mlp: Literal["gated_silu", "gelu_tanh", "quick_gelu"]
    window: int | None = None
    whole_layers: tuple[int, ...] = ()
    position_side: int = 0
    stacked_layers: tuple[int, ...] = ()

    def problem(self, num_layers: int) -> str | None:
        """One line naming the first impossible value, or None."""
        if self.window is not None and not 1 <= self.window <= 1 << 13:
            return f"the vision tower's window_size is {self.window}, expected 1 to {1 << 13}"
        if not 0 <= self.position_side <= 1 << 12:
            return f"the vision tower's positions are {self.position_side} a side, expected at most {1 << 12}"
        stacked = self.stacked_layers
        if sorted(set(stacked)) != list(stacked) or any(not 0 <= index < num_layers for index in stacked):
            return (
                f"the vision tower's deepstack layers are {list(stacked)}, expected some of its {num_layers} in order"
            )
        return None


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """A tower that reads images, and what becomes of its patches.

    patch_size: pixels a side. square: patches a side that become one row, which is what the decoder gets for a token.
    image_size: pixels a side; None where images may have any sides that are multiples of `unit`.
    token_id: the token that stands in a prompt for each row.
    bidirectional: the rows of one image see each other; else attention is causal there too.
    start_id, end_id: the tokens around an image, where the model has such.
    qwen: of Qwen's towers, with whose rows positions have three axes.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    patch_size: int
    square: int
    norm_eps: float
    token_id: int
    image_size: int | None
    bidirectional: bool = False
    start_id: int | None = None
    end_id: int | None = None
    qwen: QwenTowerConfig | None = None

    @property
    def unit(self) -> int:
        """A side of what becomes one row, in pixels."""
        return self.patch_size * self.square

    @property
    def num_stacked(self) -> int:
        """Times hidden_size that a row is wider than the decoder's, for its first layers."""
        return 0 if self.qwen is None else len(self.qwen.stacked_layers)

    def grid(self, height: int, width: int) -> tuple[int, int] | None:
        """Rows and columns of what an image of so many pixels becomes; None where it may not have this size."""
        if self.image_size is not None:
            side = self.image_size // self.patch_size // self.square
            return (side, side) if height == width == self.image_size else None
        rows, columns = height // self.unit, width // self.unit
        fits = rows > 0 < columns and (height, width) == (rows * self.unit, columns * self.unit)
        return (rows, columns) if fits else None

    def problem(self, vocab_size: int) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value, high in (
            ("hidden_size", self.hidden_size, 1 << 16),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("num_hidden_layers", self.num_layers, 1 << 12),
            ("num_attention_heads", self.num_heads, 1 << 12),
            ("image_size", 1 if self.image_size is None else self.image_size, 1 << 13),
            ("patch_size", self.patch_size, self.image_size or 1 << 10),
            ("number of patches a side that become one", self.square, 1 << 8),
        ):
            if not 1 <= value <= high:
                return f"the vision tower's {name} is {value}, expected 1 to {high}"
        if self.hidden_size % self.num_heads:
            return f"the vision tower's {self.num_heads} heads do not divide its hidden_size {self.hidden_size}"
        if not (math.isfinite(self.norm_eps) and self.norm_eps > 0):
            return f"the vision tower's layer_norm_eps is {self.norm_eps}, expected a positive number"
        if not 0 <= self.token_id < vocab_size:
            return f"the token of images is {self.token_id}, which is not in the vocabulary of {vocab_size}"
        if self.image_size is not None and (patches := self.image_size // self.patch_size) % self.square:
            return f"squares of {self.square} x {self.square} do not divide {patches} x {patches} patches"
        if self.qwen is None:
            return None
        if self.hidden_size // self.num_heads % 4:
            return f"the vision tower's heads of {self.hidden_size // self.num_heads} do not turn by two axes"
        if self.qwen.window is not None and self.qwen.window < self.unit:
            return f"the vision tower's window_size is {self.qwen.window}, expected {self.unit} at least"
        return self.qwen.problem(self.num_layers)
