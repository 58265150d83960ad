"""The shape of a tower that reads images. Imports no torch."""

import math
from dataclasses import dataclass

__all__ = ["VisionConfig"]


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """A tower that reads images, and what becomes of its patches.

    image_size, patch_size: pixels a side. tokens: rows that one image gives the decoder.
    token_id: the token that stands in a prompt for each of them.
    bidirectional: the rows of one image see each other; else attention is causal there too.
    start_id, end_id: the tokens around an image, where the model has such.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    image_size: int
    patch_size: int
    norm_eps: float
    tokens: int
    token_id: int
    bidirectional: bool
    start_id: int | None = None
    end_id: int | None = None

    @property
    def patches(self) -> int:
        """A side of an image, in patches."""
        return self.image_size // self.patch_size

    def problem(self, vocab_size: int) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value, high in (
            ("hidden_size", self.hidden_size, 1 << 16),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("num_hidden_layers", self.num_layers, 1 << 12),
            ("num_attention_heads", self.num_heads, 1 << 12),
            ("image_size", self.image_size, 1 << 13),
            ("patch_size", self.patch_size, self.image_size),
            ("number of tokens an image", self.tokens, 1 << 16),
        ):
            if not 1 <= value <= high:
                return f"the vision tower's {name} is {value}, expected 1 to {high}"
        if self.hidden_size % self.num_heads:
            return f"the vision tower's {self.num_heads} heads do not divide its hidden_size {self.hidden_size}"
        if not (math.isfinite(self.norm_eps) and self.norm_eps > 0):
            return f"the vision tower's layer_norm_eps is {self.norm_eps}, expected a positive number"
        if not 0 <= self.token_id < vocab_size:
            return f"the token of images is {self.token_id}, which is not in the vocabulary of {vocab_size}"
        side = math.isqrt(self.tokens)
        if side * side != self.tokens or self.patches % side:
            return f"{self.patches} x {self.patches} patches cannot become {self.tokens} tokens"
        return None
