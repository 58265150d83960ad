"""The executor over the fused CPU kernels. Owns a session: the KV pool, the threads and the memory of a step."""

import os
import weakref
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.batch import place_images, positions_of
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import GenerationFailed, InvalidInput
from local_engine.executor import Ahead, StepRows
from local_engine.generation import TokenOutput
from local_engine.kernels.cpu.adapters import AdapterLayers
from local_engine.kernels.cpu.decoder import PackedDecoder
from local_engine.kernels.cpu.library import Library
from local_engine.kernels.cpu.recurrent import layer_states
from local_engine.kernels.cpu.structures import StepStruct
from local_engine.kernels.cpu.topology import physical_cores
from local_engine.sampler import SamplerRow, sample
from local_engine.state_pool import StatePool

__all__ = ["CACHE_BYTES", "CpuExecutor", "step_rows"]

CACHE_BYTES: Mapping[str, int] = {"auto": 2, "bfloat16": 2, "float32": 4}
"""Of one number of keys and values, by `EngineConfig.kv_dtype`."""

_MAX_BLOCKS = 2**31 - 1
_EMBEDDED = -1
"""In place of a token: its row has its embedding already."""


def step_rows(config: ModelConfig) -> float:
    """What a step costs beside its rows, in rows: reading the weights. More rows of a sparse model read more of them.

    Measured with SmolLM2 in Q4_1, on AVX-512: 1 row 5.2 ms of CPU time, 2 more 7.8, 8 more 13.5.
    """
    return 4.0 if config.experts is None else 1.0


class CpuExecutor:
    """Implements `Executor`. Raises InvalidInput where the KV pool is too small or there is no memory for it.

    A row's result does not depend on the rows beside it, nor on how a prompt is cut: batched equals alone, exactly.
    """

    def __init__(self, model: PackedDecoder, config: EngineConfig) -> None:
        self.ahead: Ahead | None = None
        self._library = model.library
        self._hidden_size = model.config.hidden_size
        self._vocab_size = model.config.vocab_size
        self._model = model  # its weights are read in each step
        self._adapters = AdapterLayers(model.sites)
        cache_bytes = CACHE_BYTES.get(config.kv_dtype)
        if cache_bytes is None:
            raise InvalidInput("kv_dtype", f"{config.kv_dtype} is not what the model was loaded for")
        block_bytes = self._library.block_bytes(model.struct, config.block_size, cache_bytes)
        self._states = StatePool(model.config, config, config.kv_bytes)
        self._layer_states = layer_states(model.config, self._states)
        self.num_states = self._states.num_states
        # One is the padding block.
        self.num_blocks = (config.kv_bytes - self._states.num_bytes) // block_bytes - 1
        if self.num_blocks < 1:
            least = 2 * block_bytes  # one beside the padding
            raise InvalidInput("kv_bytes", f"must be at least {least} bytes for this model, not {config.kv_bytes}")
        try:
            if self.num_blocks >= _MAX_BLOCKS:
                raise MemoryError
            session = self._library.open(
                model.struct,
                block_size=config.block_size,
                num_blocks=self.num_blocks + 1,
                cache_bytes=cache_bytes,
                threads=config.threads or physical_cores(),
            )
        except MemoryError as error:
            raise InvalidInput("kv_bytes", f"{config.kv_bytes} bytes do not fit in memory") from error
        self._opened = session
        self._closer = weakref.finalize(self, _close, self._library, session, os.getpid())
        # At exit the engine's thread may be in the middle of a step, and the system takes everything back.
        self._closer.atexit = False

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """See `Executor.forward`."""
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        blocks: list[int] = []
        first_block: list[int] = []
        first_row: list[int] = []
        wanted: list[int] = []
        for index, chunk in enumerate(chunks):
            first_row.append(len(tokens))
            first_block.append(len(blocks))
            tokens += chunk.tokens
            positions += range(chunk.start, chunk.stop)
            sequences += [index] * (chunk.stop - chunk.start)
            blocks += chunk.sequence.blocks
            wanted += _wanted_rows(chunk)
        arrays = [np.array(items, dtype=np.int32) for items in (tokens, positions, sequences, blocks, first_block)]
        hidden, stacked = self._placed_images(chunks, first_row, arrays[0])
        axis_positions = _axis_positions(chunks)
        adapted = self._adapters.of_rows(chunks)
        asked = np.array(wanted, dtype=np.uint8)
        seen = _seen_positions(chunks, first_row, len(tokens))
        slots = np.array(
            [(chunk.sequence.state, chunk.sequence.next_state) for chunk in chunks], dtype=np.int32
        ).T.copy()
        step = StepStruct(
            len(tokens),
            *(array.ctypes.data for array in arrays),
            adapters=None if adapted is None else adapted.ctypes.data,
            wanted=asked.ctypes.data,
            seen=None if seen is None else seen.ctypes.data,
            states=self._layer_states,
            sources=slots[0].ctypes.data,
            targets=slots[1].ctypes.data,
            axis_positions=None if axis_positions is None else axis_positions.ctypes.data,
            stacked=None if stacked is None else stacked.data_ptr(),
        )
        self._library.forward(self._session, step, hidden.data_ptr())
        return StepRows(hidden, tuple(chunks), tuple(first_row))

    def _placed_images(
        self, chunks: SequenceOf[Chunk], first_row: SequenceOf[int], tokens: npt.NDArray[np.int32]
    ) -> tuple[Tensor, Tensor | None]:
        """Memory for hidden states, with rows of images in it, whose tokens become _EMBEDDED; and what these have for
        the first layers, where some do: zeros for other rows.
        """
        num_stacked = self._model.struct.stacked_layers if any(chunk.sequence.images for chunk in chunks) else 0
        width = self._hidden_size
        rows = (torch.zeros if num_stacked else torch.empty)(len(tokens), (1 + num_stacked) * width)
        for placed in place_images(chunks, first_row, rows):
            tokens[placed] = _EMBEDDED
        if not num_stacked:
            return rows, None
        return rows[:, :width].contiguous(), rows[:, width:].contiguous()

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        self._library.copy_blocks(self._session, np.array(pairs, dtype=np.int32))

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Executor.logits`."""
        rows = hidden.contiguous()
        logits = torch.empty(len(rows), self._vocab_size)
        self._library.logits(self._session, rows.data_ptr(), len(rows), logits.data_ptr())
        return logits

    def sample(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
        """See `Executor.sample`."""
        return sample(logits, rows)

    def prepare(self) -> bool:
        """See `Executor.prepare`: memory of the KV pool that the system has not given yet."""
        return self._library.touch_ahead(self._session)

    def close(self) -> None:
        """See `Executor.close`."""
        self._closer()
        self._states.close()

    @property
    def _session(self) -> int:
        if not self._closer.alive:
            raise RuntimeError("the executor is closed")
        return self._opened


def _wanted_rows(chunk: Chunk) -> list[bool]:
    """Of each row whether its state may be asked for: see `StepRows`."""
    sampling = chunk.sequence.request.sampling
    count = chunk.stop - chunk.start
    if sampling.prompt_logprobs is not None or sampling.context_logits:
        return [True] * count
    last = 1 + len(chunk.draft)
    return [False] * (count - last) + [True] * last


def _seen_positions(
    chunks: SequenceOf[Chunk], first_row: SequenceOf[int], num_rows: int
) -> npt.NDArray[np.int32] | None:
    """Of each row how many positions it sees, be they behind it: all of a span of `Sequence.uncut`. None: of no row."""
    if not any(chunk.sequence.uncut for chunk in chunks):
        return None
    seen = np.zeros(num_rows, dtype=np.int32)
    for chunk, first in zip(chunks, first_row, strict=True):
        for start, stop in chunk.sequence.uncut:
            begin, end = max(start, chunk.start), min(stop, chunk.stop)
            if begin < end:
                seen[first + begin - chunk.start : first + end - chunk.start] = stop
    return seen


def _axis_positions(chunks: SequenceOf[Chunk]) -> npt.NDArray[np.int32] | None:
    """Of each row by time, height and width, see `images.axis_positions`; None where all are alike."""
    if all(chunk.axis_positions is None for chunk in chunks):
        return None
    return positions_of(chunks).astype(np.int32)


def _close(library: Library, session: int, process: int) -> None:
    """In the process that opened it: a fork has none of the threads, and would wait for them for ever."""
    if os.getpid() == process:
        library.close(session)
