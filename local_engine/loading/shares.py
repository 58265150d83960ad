"""Which part of each tensor a rank has, where several processes compute one model: the one table of what is cut how.

Attention is cut by heads, feed-forward blocks and experts by their inner width, the vocabulary by its rows. What reads
the residual is cut along its outputs, what writes to it along its inputs; the bias of that is the first rank's alone.
All else is whole on every rank: norms, routers. KV heads fewer than the ranks are there several times.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from local_engine.config import ModelConfig
from local_engine.layers.ranks import Ranks, even_share
from local_engine.layers.share import WHOLE, Share

__all__ = ["Shares", "share_problem"]

_Cut = Literal["vocabulary", "heads", "kv_heads", "qkv", "width", "gate_up", "heads_in", "width_in"]

_CUTS: Mapping[str, _Cut] = {
    "embed_tokens": "vocabulary",
    "lm_head": "vocabulary",
    "q_proj": "heads",
    "k_proj": "kv_heads",
    "v_proj": "kv_heads",
    "qkv_proj": "qkv",
    "o_proj": "heads_in",
    "gate_proj": "width",
    "up_proj": "width",
    "gate_up_proj": "gate_up",
    "down_proj": "width_in",
    "w1": "width",
    "w3": "width",
    "w2": "width_in",
}
"""By what a matrix is called."""

# What the first rank alone has: images become rows of the residual, which it hands to the others.
_FIRST_RANKS = ("vision.", "projector.")


def share_problem(shape: ModelConfig, size: int) -> str | None:
    """Why so many ranks cannot share a model of this shape evenly, in one line; or None."""
    if size > 1 and shape.latent is not None:
        return "latent attention has one kv head for all query heads"
    if size > 1 and shape.uneven:
        return "layers that differ in their heads, or read each other's keys and values, need one process"
    if size > 1 and shape.recurrent is not None:
        return "recurrent layers are computed in one process"
    if size > 1 and shape.qk_norm == "row":
        return "norms of all heads of a row as one vector need them in one process"
    if shape.num_heads % size:
        return f"{shape.num_heads} query heads do not divide by {size}"
    if shape.num_kv_heads % size and size % shape.num_kv_heads:
        return f"{shape.num_kv_heads} kv heads and {size} do not divide one another"
    experts = shape.experts
    if experts is not None and experts.intermediate_size % size:
        return f"the experts' intermediate_size {experts.intermediate_size} does not divide by {size}"
    if experts is not None and experts.shared_size % size:
        return f"the shared experts' size {experts.shared_size} does not divide by {size}"
    if (experts is None or experts.dense_layers) and shape.intermediate_size % size:
        return f"intermediate_size {shape.intermediate_size} does not divide by {size}"
    if shape.vocab_size < size:
        return f"vocab_size {shape.vocab_size} is less than {size}"
    return None


class Shares:
    """What one rank has of a model of this shape, which `share_problem` has nothing against."""

    def __init__(self, shape: ModelConfig, ranks: Ranks) -> None:
        self.ranks = ranks
        self._whole = shape
        self.shape = shape if ranks.size == 1 else _local(shape, ranks.size)
        """The rank's own: its heads and widths. The vocabulary is the whole model's; see `VocabularyShare`."""

    def of(self, name: str) -> Share:
        """The part of a tensor, by the name that models ask for."""
        ranks = self.ranks
        if ranks.size == 1:
            return WHOLE
        if name.startswith(_FIRST_RANKS):
            return Share(absent=True) if ranks.rank else WHOLE
        if name.endswith(".self_attn.sinks"):
            return _stack((self._even(self._whole.num_heads), self._whole.num_heads))
        module, _, kind = name.rpartition(".")
        cut = _CUTS.get(module.rpartition(".")[2])
        if cut is None or kind not in ("weight", "bias"):
            return WHOLE
        width = self._whole.intermediate_size
        if self._whole.experts is not None and ".shared_expert" in name:
            width = self._whole.experts.shared_size
        elif self._whole.experts is not None and ".experts." in name:
            width = self._whole.experts.intermediate_size
        heads = self._whole.num_heads * self._whole.head_dim
        match cut:
            case "vocabulary":
                return Share(rows=(even_share(self._whole.vocab_size, ranks),), of_rows=self._whole.vocab_size)
            case "heads":
                return _stack((self._even(heads), heads))
            case "kv_heads":
                return _stack(self._kv_rows)
            case "qkv":
                return _stack((self._even(heads), heads), self._kv_rows, self._kv_rows)
            case "width":
                return _stack((self._even(width), width))
            case "gate_up":
                return _stack((self._even(width), width), (self._even(width), width))
            case "heads_in" | "width_in":
                if kind == "bias":
                    return Share(zero=True) if ranks.rank else WHOLE
                count = heads if cut == "heads_in" else width
                return Share(columns=self._even(count), of_columns=count)

    def is_summed(self, module: str) -> bool:
        """Whether what the linear layer of this name yields is a part of a sum over the ranks."""
        return self.of(f"{module}.weight").columns is not None

    def _even(self, count: int) -> range:
        each = count // self.ranks.size
        return range(self.ranks.rank * each, (self.ranks.rank + 1) * each)

    @property
    def _kv_rows(self) -> tuple[range, int]:
        """This rank's rows of K or V, and how many there are in all."""
        kv_heads, head_dim, ranks = self._whole.num_kv_heads, self._whole.head_dim, self.ranks
        first = ranks.rank * kv_heads // ranks.size
        return range(first * head_dim, (first + self.shape.num_kv_heads) * head_dim), kv_heads * head_dim


def _stack(*parts: tuple[range, int]) -> Share:
    """Rows of matrices that lie one under the other in one tensor: those of each, and how many each has in all."""
    ranges = []
    above = 0
    for part, count in parts:
        ranges.append(range(above + part.start, above + part.stop))
        above += count
    return Share(rows=tuple(ranges), of_rows=above)


def _local(shape: ModelConfig, size: int) -> ModelConfig:
    experts = shape.experts
    return replace(
        shape,
        num_heads=shape.num_heads // size,
        num_kv_heads=max(shape.num_kv_heads // size, 1),
        intermediate_size=max(shape.intermediate_size // size, 1),
        experts=None
        if experts is None
        else replace(
            experts,
            intermediate_size=experts.intermediate_size // size,
            shared_size=experts.shared_size // size,
        ),
    )
