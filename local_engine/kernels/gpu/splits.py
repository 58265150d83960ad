"""Into how many ranges the keys of a sequence are split when it decodes: measured for each batch size, or guessed."""

import math

import torch

from local_engine.config import EngineConfig
from local_engine.kernels.dispatch import DeviceFacts
from local_engine.kernels.gpu.decoder import FusedDecoder
from local_engine.kernels.triton.paged_decode import num_splits
from local_engine.kernels.tuning import Tuning
from local_engine.layers.kv_cache import LayerCache

__all__ = ["SplitChoice"]

# Powers of two alone: each number is a kernel of its own, compiled when it is first met.
_VARIANTS = (1, 2, 4, 8, 16, 32, 64)
# Keys of the sequences that a choice is measured with, and runs of the kernel.
_MEASURED_LENGTH, _RUNS = 2048, 20


class SplitChoice:
    """For one model on one device. cache: of a layer of its pool, to measure with."""

    def __init__(
        self, model: FusedDecoder, cache: LayerCache, config: EngineConfig, *, facts: DeviceFacts, tuning: Tuning
    ) -> None:
        self._model = model
        self._cache = cache
        self._block_size = config.block_size
        self._facts = facts
        self._tuning = tuning

    def guess(self, num_sequences: int, longest: int) -> int:
        """By the number of programs that fill the device."""
        wanted = num_splits(num_sequences, self._model.config.num_kv_heads, longest, self._facts.processors)
        return 1 << int(math.log2(wanted))

    def best(self, num_sequences: int, window: int) -> int:
        """The fastest for so many sequences of middling length; a guess where there is no GPU to measure on."""
        if self._facts.arch is None:
            return self.guess(num_sequences, window)
        shape = self._model.config
        guess = self.guess(num_sequences, window)
        near = tuple(splits for splits in _VARIANTS if guess // 4 <= splits <= guess * 4)
        length = min(window, _MEASURED_LENGTH)
        described = (
            f"{num_sequences} x {length}, heads {shape.num_heads}/{shape.num_kv_heads} of {shape.head_dim}, "
            f"{self._cache.keys.dtype} in {self._block_size}"
        )
        return self._tuning.best(
            "paged_decode splits", described, near, lambda splits: self._seconds(num_sequences, length, splits)
        )

    @torch.inference_mode()
    def _seconds(self, num_sequences: int, length: int, splits: int) -> float:
        shape, keys = self._model.config, self._cache.keys
        num_blocks = len(keys) // self._block_size
        width = -(-length // self._block_size)
        order = torch.arange(num_sequences * width, device=keys.device) * 7919 % num_blocks
        tables = order.to(torch.int32).view(num_sequences, width)
        lengths = torch.full((num_sequences,), length, dtype=torch.int32, device=keys.device)
        queries = torch.zeros(
            num_sequences, shape.num_heads, shape.head_dim, dtype=self._model.dtype, device=keys.device
        )
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        for run in range(-2, _RUNS):
            if run == 0:
                begin.record()
            self._model.kernels.paged_decode(
                queries, self._cache, tables, lengths, block_size=self._block_size, splits=splits
            )
        end.record()
        end.synchronize()
        elapsed_ms: float = begin.elapsed_time(end)
        return elapsed_ms / 1000 / _RUNS
