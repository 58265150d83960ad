"""Decode steps over static tensors, for a ladder of batch sizes: recorded as CUDA graphs, replayed with one call.

A step is padded to the next size. Owns the static tensors and the graphs; knows no sequences. Steps with adapters are
recorded apart, when they are met. On a CPU nothing is recorded: the same static tensors are computed from each time.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from local_engine.kernels.gpu.decoder import StepTensors
from local_engine.kernels.gpu.step_rows import HostStep, with_drawn
from local_engine.transfers import to_device

__all__ = ["DecodeGraphs", "ladder"]

Forward = Callable[[StepTensors], tuple[Tensor, Tensor]]
"""Hidden states before and after the last norm, as `FusedDecoder.forward` gives them."""


def ladder(largest: int) -> tuple[int, ...]:
    """Batch sizes up to `largest`, close enough together that padding is at most half of a step."""
    steps = (*(1, 2, 4), *range(8, 64, 8), *range(64, 128, 16), *range(128, 256, 32), *range(256, 1025, 64))
    return (*(size for size in steps if size < largest), min(largest, steps[-1]))


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One size. graph None: computed from `inputs` each time."""

    inputs: StepTensors
    graph: torch.cuda.CUDAGraph | None
    outputs: tuple[Tensor, Tensor] | None


class DecodeGraphs:
    """Not thread-safe. splits_of: ranges of keys for a batch size; see `paged_decode`."""

    def __init__(
        self,
        forward: Forward,
        sizes: tuple[int, ...],
        *,
        max_blocks: int,
        device: torch.device,
        splits_of: Callable[[int], int],
    ) -> None:
        self._forward = forward
        self._sizes = sizes
        self._device = device
        self._splits_of = splits_of
        largest = sizes[-1]
        wide = torch.zeros(3, largest, dtype=torch.int64, device=device)
        self._token_ids, self._positions, self._slots = wide
        self._slots.fill_(-1)
        self._block_tables = torch.zeros(largest, max_blocks, dtype=torch.int32, device=device)
        self._lengths = torch.zeros(largest, dtype=torch.int32, device=device)
        self._query_starts = torch.zeros(1, dtype=torch.int32, device=device)
        self._adapter_slots = torch.full((largest,), -1, dtype=torch.int32, device=device)
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._recorded: dict[int, _Recorded] = {}
        self._adapted: dict[int, _Recorded] = {}

    @torch.inference_mode()
    def record(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Records all sizes, the largest first: the smaller ones fit in its memory. Takes about a second each."""
        for done, size in enumerate(reversed(self._sizes)):
            self._recorded[size] = self._record(self._inputs(size))
            if progress is not None:
                progress(done + 1, len(self._sizes))

    def run(self, step: HostStep, drawn: Tensor) -> tuple[Tensor, Tensor] | None:
        """The outputs of a step that only decodes, [rows, hidden_size] both, valid until the next one.

        None for a step that is too large. drawn: the tokens that were drawn last.
        """
        num_rows = len(step.token_ids)
        if num_rows > self._sizes[-1]:
            return None
        size = self._sizes[bisect_left(self._sizes, num_rows)]
        self._fill(step.padded(size), drawn)
        recorded = self._recorded[size] if step.adapter_slots is None else self._with_adapters(size)
        if recorded.graph is None or recorded.outputs is None:
            outputs = self._forward(recorded.inputs)
        else:
            recorded.graph.replay()
            outputs = recorded.outputs
        return outputs[0][:num_rows], outputs[1][:num_rows]

    def forget_adapters(self) -> None:
        """The adapters' matrices move: what was recorded reads where they are now."""
        if self._device.type == "cuda" and self._adapted:
            torch.cuda.synchronize(self._device)
        self._adapted.clear()

    def _with_adapters(self, size: int) -> _Recorded:
        """Computed from its inputs the first time, so that kernels are compiled; recorded the second time.

        So each step is computed once, however many ranks record it in other steps than this one.
        """
        if size not in self._adapted:
            inputs = replace(self._recorded[size].inputs, adapter_slots=self._adapter_slots[:size])
            self._adapted[size] = _Recorded(inputs, None, None)
        elif self._pool is not None and self._adapted[size].graph is None:
            self._adapted[size] = self._capture(self._adapted[size].inputs)
        return self._adapted[size]

    def _fill(self, step: HostStep, drawn: Tensor) -> None:
        size, width = step.block_tables.shape
        token_ids = to_device(step.token_ids, self._device)
        self._token_ids[:size].copy_(with_drawn(token_ids, drawn) if step.any_pending else token_ids)
        self._positions[:size].copy_(to_device(step.positions, self._device))
        self._slots[:size].copy_(to_device(step.slots, self._device))
        self._lengths[:size].copy_(to_device(step.lengths, self._device))
        self._block_tables[:size, :width].copy_(to_device(step.block_tables, self._device))
        if step.adapter_slots is not None:
            self._adapter_slots[:size].copy_(to_device(step.adapter_slots, self._device))

    def _inputs(self, size: int) -> StepTensors:
        return StepTensors(
            token_ids=self._token_ids[:size],
            positions=self._positions[:size],
            slots=self._slots[:size],
            block_tables=self._block_tables[:size],
            lengths=self._lengths[:size],
            prompt_lengths=self._lengths[:0],
            num_decodes=size,
            query_starts=self._query_starts,
            splits=self._splits_of(size),
        )

    def _record(self, inputs: StepTensors) -> _Recorded:
        if self._pool is None:
            return _Recorded(inputs, None, None)
        # Once without recording: kernels are compiled and libraries set up, which no graph may contain.
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            self._forward(inputs)
        torch.cuda.current_stream(self._device).wait_stream(side)
        return self._capture(inputs)

    def _capture(self, inputs: StepTensors) -> _Recorded:
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may use the device meanwhile: another model's engine, say.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = self._forward(inputs)
        return _Recorded(inputs, graph, outputs)
