"""Rows that a file has in another order than ours. Of heads pair by pair: those that turn together side by side, where
ours are half a head apart. Of groups with several parts each, where ours are part by part.

Rows change their places while they are read, and nothing else knows of it.
"""

from collections.abc import Sequence

from torch import Tensor

from local_engine.config import ModelConfig

__all__ = ["grouped_order", "head_order", "in_our_order", "interleaved_heads", "turning_rows"]


def head_order(head_dim: int, turning: int = 0) -> list[int]:
    """Where each row of a head lies in such a file. turning: how many of the first rows turn; 0 is all of them."""
    turning = turning or head_dim
    return [*range(0, turning, 2), *range(1, turning, 2), *range(turning, head_dim)]


def in_our_order(rows: Tensor, heads: int, turning: int = 0) -> Tensor:
    """All rows of such a tensor, [rows] or [rows, columns], each in its place."""
    head_dim = rows.shape[0] // heads
    return rows.view(heads, head_dim, -1)[:, head_order(head_dim, turning)].view(rows.shape)


def grouped_order(num_rows: int, parts: Sequence[int]) -> list[int]:
    """Where each row lies in a file whose groups have so many rows of each part."""
    size = sum(parts)
    begins = [sum(parts[:index]) for index in range(len(parts))]
    return [
        group + begin + row
        for begin, count in zip(begins, parts, strict=True)
        for group in range(0, num_rows, size)
        for row in range(count)
    ]


def interleaved_heads(config: ModelConfig, name: str) -> int:
    """How many heads the rows of this tensor are that transformers keeps so, in a model and in adapters; 0 is none."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads} if config.interleaved_heads else {}
    return next((count for part, count in heads.items() if f".self_attn.{part}" in name), 0)


def turning_rows(config: ModelConfig) -> int:
    """Rows of a head that turn; 0 is all of them."""
    ropes = [kind.rope for kind in config.attention_kinds if kind.rope is not None]
    return ropes[0].rotary_dim or 0 if ropes else 0
