"""What each kernel, and each step of a model, must move and compute: counted from shapes, before anything is measured.

`python bench/gpu/measure.py --predict` prints these numbers; measurements are divided by them. Imports no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["CHECKED", "FULL", "TINY", "WEIGHT_BITS", "Cost", "Sizes", "kernel_costs", "prediction", "step_cost"]

_ITEM, _WIDE = 2, 4
WEIGHT_BITS: Mapping[str, float] = MappingProxyType({"bf16": 16, "int8": 8.25, "int4": 4.5, "fp8": 8})
"""Of one weight of a layer, with its share of the scales: int8 has one in 16 bits for 64, int4 one for 32."""
_HEAD_BITS: Mapping[str, float] = MappingProxyType({"bf16": 16, "int8": 8.25, "int4": 8.25, "fp8": 8})
"""Of the last matrix, which never has fewer than 8."""


@dataclass(frozen=True)
class Cost:
    """num_bytes: read and written. operations: of products, a multiplication and an addition being two."""

    num_bytes: float
    operations: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.num_bytes + other.num_bytes, self.operations + other.operations)

    def seconds(self, bytes_per_s: float, operations_per_s: float) -> float:
        """The floor: the longer of both."""
        return max(self.num_bytes / bytes_per_s, self.operations / operations_per_s)


@dataclass(frozen=True)
class Sizes:
    """A decoder's shape and the work of the bench.

    rows: of operations that work row by row; enough of them that the caches do not hold them. sequences, context: that
    decode side by side. prompt: tokens of one prompt. experts, per_token, expert_width: of a layer of experts.
    """

    layers: int
    hidden: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rows: int
    sequences: int
    context: int
    prompt: int
    experts: int
    per_token: int
    expert_width: int
    splits: int = 1

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of the products of a layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            (queries + 2 * keys, self.hidden),
            (self.hidden, queries),
            (2 * self.width, self.hidden),
            (self.hidden, self.width),
        )


FULL = Sizes(32, 4096, 14336, 32, 8, 128, 128_256, 16_384, 64, 1024, 8192, 64, 8, 768, splits=1)
"""8B: the shape of Llama 3.1. Experts: those of a layer of Qwen3-30B-A3B, half of them."""
CHECKED = Sizes(2, 512, 1408, 8, 2, 64, 5000, 70, 5, 200, 150, 8, 2, 96, splits=4)
TINY = Sizes(1, 64, 96, 4, 2, 16, 300, 3, 2, 20, 12, 4, 2, 32, splits=2)


def kernel_costs(sizes: Sizes) -> dict[str, Cost]:
    """Of one call of each kernel, in the model's layer, by the names of the bench's cases."""
    s = sizes
    heads = s.heads + 2 * s.kv_heads
    keys = s.sequences * s.context
    partial = 0 if s.splits == 1 else 2 * s.sequences * s.heads * s.splits * (s.head_dim + 2) * _WIDE
    outputs, inputs = 2 * s.width, s.hidden
    matmul = 2 * s.sequences * outputs * inputs
    rows_of_x = s.sequences * (inputs + outputs) * _ITEM
    chosen = min(s.experts, s.sequences * s.per_token)
    return {
        "add_rms_norm": Cost(4 * s.rows * s.hidden * _ITEM),
        "gated_activation": Cost(3 * s.rows * s.width * _ITEM),
        "rope_kv_write": Cost(2 * s.rows * heads * s.head_dim * _ITEM + 2 * s.rows * s.head_dim * _WIDE),
        "paged_decode": Cost(
            2 * keys * s.kv_heads * s.head_dim * _ITEM + 2 * s.sequences * s.heads * s.head_dim * _ITEM + partial,
            4 * keys * s.heads * s.head_dim,
        ),
        "paged_prefill": Cost(
            2 * s.prompt * (s.heads + s.kv_heads) * s.head_dim * _ITEM,
            2 * s.prompt * (s.prompt + 1) * s.heads * s.head_dim,
        ),
        **{
            f"quantized_matmul {kind}": Cost(outputs * inputs * WEIGHT_BITS[kind] / 8 + rows_of_x, matmul)
            for kind in ("int8", "int4", "fp8")
        },
        "scaled_matmul": Cost(
            outputs * inputs + s.prompt * (inputs + _ITEM * outputs), 2 * s.prompt * outputs * inputs
        ),
        "embedding": Cost(2 * s.rows * s.hidden * _ITEM),
        "selected_logits": Cost(s.vocab * s.hidden * _ITEM + s.sequences * s.vocab * _ITEM,
                                2 * s.sequences * s.vocab * s.hidden),
        "sample_tokens greedy": Cost(s.sequences * s.vocab * (_ITEM + _WIDE)),
        "sample_tokens drawn": Cost(s.sequences * s.vocab * (_ITEM + 6 * _WIDE)),
        "sparse_experts": Cost(
            3 * chosen * s.expert_width * s.hidden * _ITEM, 6 * s.sequences * s.per_token * s.expert_width * s.hidden
        ),
        "add_lora": Cost(s.sequences * (s.hidden + 2 * s.hidden) * _ITEM + 8 * 16 * 2 * s.hidden * _ITEM),
    }  # fmt: skip


def weight_bytes(sizes: Sizes, kind: str) -> float:
    """What a step reads of the weights: all layers and the last matrix. Of the embedding it reads its rows alone."""
    layer = sum(outputs * inputs for outputs, inputs in sizes.matrices)
    return (
        sizes.layers * (layer * WEIGHT_BITS[kind] / 8 + 2 * sizes.hidden * _ITEM)
        + sizes.vocab * sizes.hidden * _HEAD_BITS[kind] / 8
    )


def step_cost(sizes: Sizes, kind: str, *, sequences: int, past: int, tokens: int = 1) -> Cost:
    """One step: of each sequence `tokens` tokens after `past` others, and the logits of the last.

    Counts weights, keys and values, and products. What lies between two operations may stay in a cache, and is small.
    """
    s = sizes
    rows = sequences * tokens
    visible = sequences * (tokens * past + tokens * (tokens + 1) / 2)
    kept = sequences * (past + tokens) if tokens == 1 else sequences * (past + 2 * tokens)
    products = 2 * rows * s.layers * sum(outputs * inputs for outputs, inputs in s.matrices)
    return Cost(
        weight_bytes(s, kind) + 2 * kept * s.layers * s.kv_heads * s.head_dim * _ITEM,
        products + 2 * sequences * s.vocab * s.hidden + 4 * visible * s.layers * s.heads * s.head_dim,
    )


def prediction(bytes_per_s: float = 4.3e12, operations_per_s: float = 790e12) -> list[str]:
    """Two tables in Markdown: each kernel, and each step of the bench. Rates: an H200's, as measured elsewhere."""
    lines = ["| kernel | MB | G operations | floor, us |", "|---|---|---|---|"]
    for name, cost in kernel_costs(FULL).items():
        floor = cost.seconds(bytes_per_s, operations_per_s)
        lines.append(f"| {name} | {cost.num_bytes / 1e6:,.0f} | {cost.operations / 1e9:,.0f} | {floor * 1e6:,.0f} |")
    lines += ["", "| step of the 8B shape | weights | GB | T operations | floor, ms |", "|---|---|---|---|---|"]
    for words, sequences, past, tokens in _steps():
        for kind in WEIGHT_BITS:
            cost = step_cost(FULL, kind, sequences=sequences, past=past, tokens=tokens)
            floor = cost.seconds(bytes_per_s, operations_per_s)
            row = (words, kind, f"{cost.num_bytes / 1e9:.1f}", f"{cost.operations / 1e12:.2f}", f"{floor * 1e3:.2f}")
            lines.append(f"| {' | '.join(row)} |")
    return lines


def _steps() -> Sequence[tuple[str, int, int, int]]:
    decode = [(f"decode, {count} stream{'s' * (count > 1)} of 256", count, 256, 1) for count in (1, 8, 64, 256)]
    return [*decode, *((f"prefill, {count:,} tokens", 1, 0, count) for count in (512, 8192))]
