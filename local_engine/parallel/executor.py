"""The executor of rank 0: tells the other ranks of every step, then computes its own share of it."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.errors import GenerationFailed
from local_engine.executor import Ahead, Executor, StepRows
from local_engine.generation import TokenOutput
from local_engine.parallel.group import RankGroup
from local_engine.parallel.messages import Kind
from local_engine.parallel.shared_adapter import AdapterNumbers, SharedAdapter
from local_engine.parallel.step_plan import asked_rows, image_spans, plan_bytes
from local_engine.sampler import SamplerRow

__all__ = ["ParallelExecutor"]


@dataclass(frozen=True, slots=True)
class _Following:
    """Rows of the last step whose logits the other ranks compute already."""

    hidden: Tensor
    rows: list[int]


class ParallelExecutor:
    """Implements `Executor` over the one of this rank, `own`. num_blocks: as many as every rank has.

    closed: called when the others have nothing more to do. An error while the ranks compute together is the end of all
    of them: RankLost, then and ever after.
    """

    def __init__(
        self,
        own: Executor,
        group: RankGroup,
        config: EngineConfig,
        *,
        num_blocks: int,
        adapters: AdapterNumbers,
        closed: Callable[[], None],
    ) -> None:
        self._closed = closed
        self.ahead: Ahead | None = None
        self.num_blocks = num_blocks
        self.num_states = 0
        self._own = own
        self._group = group
        self._adapters = adapters
        self._block_size = config.block_size
        self._dtype: torch.dtype = getattr(torch, config.float_dtype)
        self._device = torch.device(config.device)
        self._following: _Following | None = None

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """See `Executor.forward`. One message a step, where it only asks for the tokens that come next."""
        self._settle()
        asked = {chunk: len(chunk.draft) + 1 for chunk in chunks if chunk.reaches_end and chunk.sequence.max_tokens > 0}
        logits_follow = bool(asked) and not any(map(_reads_prompt, chunks))
        payload = plan_bytes(
            chunks,
            num_asked=asked,
            adapters=_numbers(chunks),
            logits_follow=logits_follow,
            block_size=self._block_size,
            forgotten=self._adapters.take_forgotten(),
        )
        self._group.tell(Kind.STEP, payload)
        with self._group.guarded():
            for chunk in chunks:
                for image, start, stop in image_spans(chunk):
                    self._hand_out(image.rows[start - image.start : stop - image.start])
            step = self._own.forward(chunks)
        if logits_follow:
            counts = [asked.get(chunk, 0) for chunk in step.chunks]
            self._following = _Following(step.hidden, asked_rows(step.chunks, step.first_row, counts))
        return step

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        self._settle()
        self._group.tell(Kind.COPY, np.array(pairs, dtype=np.int32).tobytes())
        with self._group.guarded():
            self._own.copy_blocks(pairs)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Executor.logits`."""
        following = self._following
        if following is not None and len(following.rows) == len(hidden):
            self._following = None
        else:
            self._settle()
            self._group.tell(Kind.LOGITS, len(hidden).to_bytes(8, "little"))
            self._hand_out(hidden)
        with self._group.guarded():
            return self._own.logits(hidden)

    def sample(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
        """See `Executor.sample`."""
        drawn = self._own.sample(logits, rows)
        self._group.check()
        return drawn

    def prepare(self) -> bool:
        """See `Executor.prepare`."""
        return False

    def close(self) -> None:
        """See `Executor.close`."""
        if self._group.processes.lost is None:
            self._settle()
        self._own.close()
        self._closed()

    def _settle(self) -> None:
        """Takes part in the logits that the others compute, where nobody here wants them any more."""
        following, self._following = self._following, None
        if following is not None:
            with self._group.guarded():
                self._own.logits(following.hidden[following.rows])

    def _hand_out(self, rows: Tensor) -> None:
        with self._group.guarded():
            self._group.ranks.broadcast(rows.to(self._device, self._dtype).contiguous())


def _reads_prompt(chunk: Chunk) -> bool:
    sampling = chunk.sequence.request.sampling
    return sampling.prompt_logprobs is not None or sampling.context_logits


def _numbers(chunks: SequenceOf[Chunk]) -> Mapping[Chunk, int]:
    found = {}
    for chunk in chunks:
        if chunk.sequence.adapter is not None:
            deltas = chunk.sequence.adapter.deltas
            assert isinstance(deltas, SharedAdapter)  # `read_adapter` of this model gives no other
            found[chunk] = deltas.number
    return found
