"""Each kernel with inputs of a size, and its twin: what the bench checks and times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from costs import Sizes
from sampling import draws_of_the_reference, sampling_rules
from torch import Tensor

from local_engine.kernels.operations import HeadNorms
from local_engine.kernels.triton.add_rms_norm import add_rms_norm, add_rms_norm_twin
from local_engine.kernels.triton.embedding import embedding, embedding_twin
from local_engine.kernels.triton.gated_activation import gated_activation, gated_activation_twin
from local_engine.kernels.triton.lora import add_lora, add_lora_twin, new_lora_stack
from local_engine.kernels.triton.paged_decode import paged_decode, paged_decode_twin
from local_engine.kernels.triton.paged_prefill import paged_prefill, paged_prefill_twin
from local_engine.kernels.triton.quantized_matmul import matmul_splits, quantized_matmul, quantized_matmul_twin
from local_engine.kernels.triton.rope_kv_write import rope_kv_write, rope_kv_write_twin
from local_engine.kernels.triton.row_groups import group_rows, group_rows_twin
from local_engine.kernels.triton.sample_tokens import sample_tokens
from local_engine.kernels.triton.sampling_rules import SamplingTensors
from local_engine.kernels.triton.scaled_matmul import scaled_matmul, scaled_matmul_twin
from local_engine.kernels.triton.selected_logits import selected_logits, selected_logits_twin
from local_engine.kernels.triton.sparse_experts import StackedExperts, sparse_experts, sparse_experts_twin
from local_engine.layers.kv_cache import LayerCache, new_layer_cache
from local_engine.layers.rope import rope_tables
from local_engine.loading.repacked.rounded import rounded_fp8_matrix, rounded_matrix

__all__ = ["Case", "cases"]

_BLOCK = 16
_COPIES = 4


@dataclass(frozen=True)
class Case:
    """run: the kernel, on the inputs of that number where there are several; -1 is to be compared, and may do more.

    twin: the same in torch, on the first inputs. tolerance: of the largest difference, relative to the twin's largest
    number. bound: what limits it.
    """

    name: str
    run: Callable[[int], Tensor]
    twin: Callable[[], Tensor]
    tolerance: float
    bound: str = "bytes"


class Inputs:
    """Random tensors of one device and type, the same in each run."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator(device).manual_seed(7)

    def numbers(self, *shape: int, scale: float = 1.0) -> Tensor:
        made = torch.randn(*shape, generator=self._generator, device=self.device) * scale
        return made.to(self.dtype)

    def ints(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(high, shape, generator=self._generator, device=self.device, dtype=dtype)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self._generator, device=self.device)


def cases(s: Sizes, device: torch.device, dtype: torch.dtype, *, copies: int = _COPIES) -> Iterator[Case]:
    """All kernels, one after the other, so that no more than one's inputs are there at once."""
    given = Inputs(device, dtype)
    yield from _row_by_row(s, given)
    yield _decode(s, given)
    yield _prefill(s, given)
    for kind in ("int8", "int4", "fp8"):
        yield _quantized(s, given, kind, copies)
    yield _scaled(s, given)
    yield _logits(s, given)
    yield from _sampling(s, given)
    yield _experts(s, given)
    yield _lora(s, given)


def _row_by_row(s: Sizes, given: Inputs) -> Iterator[Case]:
    x, residual = given.numbers(s.rows, s.hidden), given.numbers(s.rows, s.hidden)
    weight = given.numbers(s.hidden)
    yield Case(
        "add_rms_norm",
        lambda index: add_rms_norm(x, residual.clone() if index < 0 else residual, weight, 1e-5),
        lambda: add_rms_norm_twin(x, residual.clone(), weight, 1e-5),
        0.01,
    )
    gate_up = given.numbers(s.rows, 2 * s.width)
    yield Case(
        "gated_activation",
        lambda _: gated_activation(gate_up, "silu"),
        lambda: gated_activation_twin(gate_up, "silu"),
        0.01,
    )
    cache, _ = _cache(s.rows, 1, s, given)
    other, _ = _cache(s.rows, 1, s, given)
    qkv = given.numbers(s.rows, s.heads + 2 * s.kv_heads, s.head_dim)
    slots = given.order(s.rows)
    frequencies = torch.logspace(0, -4, s.head_dim // 2, device=given.device)
    angles = rope_tables(torch.arange(s.rows, device=given.device), frequencies, torch.float32)
    norms = HeadNorms(given.numbers(s.head_dim), given.numbers(s.head_dim), 1e-6)

    def written(of: LayerCache, queries: Tensor) -> Tensor:
        return torch.cat((queries.flatten(), of.keys[slots].flatten(), of.values[slots].flatten()))

    yield Case(
        "rope_kv_write",
        lambda index: (
            written(cache, rope_kv_write(qkv, cache, slots, angles=angles, norms=norms))
            if index < 0
            else rope_kv_write(qkv, cache, slots, angles=angles, norms=norms)
        ),
        lambda: written(other, rope_kv_write_twin(qkv, other, slots, angles=angles, norms=norms)),
        0.01,
    )
    token_ids, table = given.ints(s.vocab, s.rows), given.numbers(s.vocab, s.hidden)
    yield Case("embedding", lambda _: embedding(token_ids, table), lambda: embedding_twin(token_ids, table), 0.001)


def _cache(length: int, sequences: int, s: Sizes, given: Inputs) -> tuple[LayerCache, Tensor]:
    """A cache of random keys and values, and the block tables of sequences of that length."""
    blocks = -(-length // _BLOCK)
    slots = (sequences * blocks + 1) * _BLOCK
    name = str(given.dtype).removeprefix("torch.")
    cache = new_layer_cache(slots, s.kv_heads, s.head_dim, kv_dtype=name, device=given.device)
    cache.keys.copy_(given.numbers(slots, s.kv_heads, s.head_dim))
    cache.values.copy_(given.numbers(slots, s.kv_heads, s.head_dim))
    tables = 1 + given.order(sequences * blocks).to(torch.int32).view(sequences, blocks)
    return cache, tables


def _decode(s: Sizes, given: Inputs) -> Case:
    cache, tables = _cache(s.context, s.sequences, s, given)
    lengths = torch.full((s.sequences,), s.context, dtype=torch.int32, device=given.device)
    queries = given.numbers(s.sequences, s.heads, s.head_dim)
    return Case(
        "paged_decode",
        lambda _: paged_decode(queries, cache, tables, lengths, block_size=_BLOCK, splits=s.splits),
        lambda: paged_decode_twin(queries, cache, tables, lengths, block_size=_BLOCK),
        0.02,
    )


def _prefill(s: Sizes, given: Inputs) -> Case:
    cache, tables = _cache(s.prompt, 1, s, given)
    starts = torch.tensor([0, s.prompt], dtype=torch.int32, device=given.device)
    lengths = starts[1:].contiguous()
    queries = given.numbers(s.prompt, s.heads, s.head_dim)
    return Case(
        "paged_prefill",
        lambda _: paged_prefill(queries, cache, tables, starts, lengths, max_queries=s.prompt, block_size=_BLOCK),
        lambda: paged_prefill_twin(queries, cache, tables, starts, lengths, block_size=_BLOCK),
        0.02,
        bound="operations",
    )


def _quantized(s: Sizes, given: Inputs, kind: str, copies: int) -> Case:
    outputs, inputs = 2 * s.width, s.hidden
    weight = given.numbers(outputs, inputs, scale=inputs**-0.5)
    matrix = (
        rounded_fp8_matrix(weight)
        if kind == "fp8"
        else rounded_matrix(weight, bits=int(kind[3:]), group_size={"int8": 64, "int4": 32}[kind])
    )
    # Several, in turns: a cache might hold one.
    matrices = [matrix, *(replace(matrix, low=matrix.low.clone()) for _ in range(copies - 1))]
    x = given.numbers(s.sequences, inputs)
    processors = (
        torch.cuda.get_device_properties(given.device).multi_processor_count if given.device.type == "cuda" else 8
    )
    splits = 1 << matmul_splits(s.sequences, outputs, inputs, processors).bit_length() - 1
    return Case(
        f"quantized_matmul {kind}",
        lambda index: quantized_matmul(x, matrices[index % copies], splits=splits),
        lambda: quantized_matmul_twin(x, matrix),
        0.02,
    )


def _scaled(s: Sizes, given: Inputs) -> Case:
    outputs, inputs = 2 * s.width, s.hidden
    x, weight = (given.ints(255, count, inputs, dtype=torch.int64).sub_(127).to(torch.int8)
                 for count in (s.prompt, outputs))  # fmt: skip
    x_scales, weight_scales = (torch.full((count,), 0.01, device=given.device) for count in (s.prompt, outputs))
    return Case(
        "scaled_matmul",
        lambda _: scaled_matmul(x, x_scales, weight, weight_scales, dtype=given.dtype),
        lambda: scaled_matmul_twin(x, x_scales, weight, weight_scales, dtype=given.dtype),
        0.01,
        bound="operations",
    )


def _logits(s: Sizes, given: Inputs) -> Case:
    hidden, head = given.numbers(s.sequences, s.hidden), given.numbers(s.vocab, s.hidden, scale=s.hidden**-0.5)
    return Case(
        "selected_logits",
        lambda _: selected_logits(hidden, None, head),
        lambda: selected_logits_twin(hidden, None, head),
        0.02,
    )


def _sampling(s: Sizes, given: Inputs) -> Iterator[Case]:
    logits = given.numbers(s.sequences, s.vocab, scale=3.0)
    for kind, drawn in (("greedy", False), ("drawn", True)):
        rules = sampling_rules(s.sequences, s.vocab, device=given.device, drawn=drawn)
        yield _sampler(f"sample_tokens {kind}", logits, rules, drawn=drawn)


def _sampler(name: str, logits: Tensor, rules: SamplingTensors, *, drawn: bool) -> Case:
    def run(index: int) -> Tensor:
        token_ids = sample_tokens(logits, rules, all_greedy=not drawn).drawn.token_ids
        # Tokens that are equally likely are as good as each other.
        return logits.gather(1, token_ids[:, None]) if index < 0 else token_ids

    return Case(name, run, lambda: logits.gather(1, draws_of_the_reference(logits, drawn=drawn)[:, None]), 0.0)


def _experts(s: Sizes, given: Inputs) -> Case:
    gate_up = given.numbers(s.experts, 2 * s.expert_width, s.hidden, scale=s.hidden**-0.5)
    down = given.numbers(s.experts, s.hidden, s.expert_width, scale=s.expert_width**-0.5)
    x = given.numbers(s.sequences, s.hidden)
    stacked = StackedExperts(gate_up, down)
    # Of 32 bits: equal ones are chosen from in any order.
    logits = given.numbers(s.sequences, s.experts).float() + given.numbers(s.sequences, s.experts).float() / 1024
    return Case(
        "sparse_experts",
        lambda _: sparse_experts(x, logits, stacked, per_token=s.per_token, normalised=True),
        lambda: sparse_experts_twin(x, logits, stacked, per_token=s.per_token, normalised=True),
        0.05,
    )


def _lora(s: Sizes, given: Inputs) -> Case:
    slots, rank = 8, 16
    stack = new_lora_stack(slots, rank, s.hidden, s.hidden, dtype=given.dtype, device=given.device)
    stack.down.copy_(given.numbers(slots, rank, s.hidden, scale=s.hidden**-0.5))
    stack.up.copy_(given.numbers(slots, s.hidden, rank, scale=rank**-0.5))
    owner_of = given.ints(slots, s.sequences, dtype=torch.int32)
    groups = group_rows(owner_of, slots, block_size=16)
    x = given.numbers(s.sequences, s.hidden)

    def run(_: int) -> Tensor:
        y = torch.zeros_like(x)
        add_lora(y, x, stack, groups)
        return y

    def twin() -> Tensor:
        y = torch.zeros_like(x)
        add_lora_twin(y, x, stack, group_rows_twin(owner_of, slots, block_size=16))
        return y

    return Case("add_lora", run, twin, 0.03)
