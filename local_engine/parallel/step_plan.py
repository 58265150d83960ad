"""One step's chunks as bytes: what rank 0 sends to the others, and what they compute from it.

32-bit integers: the number of chunks, whether their logits follow at once, adapters that nobody needs any more, and of
each chunk its place, its tokens, blocks, images, spans that are not cut, and positions where they have axes. Nothing is
kept from one plan to the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest
from local_engine.images import PlacedImage
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence as EngineSequence

__all__ = ["PlannedChunk", "StepPlan", "asked_rows", "image_spans", "parsed_pairs", "parsed_plan", "plan_bytes"]

_NOBODY = GenerationRequest("", (0,), SamplingParams())
_CHUNK_FIELDS = 9
_AXES = 3
_NO_ADAPTER = -1


@dataclass(frozen=True, slots=True)
class PlannedChunk(Chunk):
    """A chunk of which only the tokens to compute are known, and their positions where these have axes.

    num_asked: its last rows, whose logits choose tokens. along_axes: three numbers a token, or none.
    """

    planned: tuple[int, ...] = ()
    num_asked: int = 0
    along_axes: tuple[int, ...] = ()

    @property
    def tokens(self) -> list[int]:
        return list(self.planned)

    @property
    def axis_positions(self) -> npt.NDArray[np.int64] | None:
        return np.array(self.along_axes, dtype=np.int64).reshape(-1, _AXES) if self.along_axes else None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """logits_follow: of the chunks' asked rows, right after the step. forgotten: numbers of adapters.

    spans: of each chunk, the rows of its images that rank 0 hands out, from and to.
    """

    chunks: list[PlannedChunk]
    logits_follow: bool
    forgotten: list[int]
    spans: list[list[tuple[int, int]]]


def asked_rows(chunks: Sequence[Chunk], first_row: Sequence[int], num_asked: Sequence[int]) -> list[int]:
    """The rows of a step whose logits choose tokens: of each chunk the last `num_asked`."""
    rows: list[int] = []
    for chunk, first, count in zip(chunks, first_row, num_asked, strict=True):
        end = first + chunk.stop - chunk.start
        rows += range(end - count, end)
    return rows


def image_spans(chunk: Chunk) -> list[tuple[PlacedImage, int, int]]:
    """What the chunk has of its images: positions of the prompt, from and to."""
    spans = []
    for image in chunk.sequence.images:
        start, stop = max(image.start, chunk.start), min(image.stop, chunk.stop)
        if start < stop:
            spans.append((image, start, stop))
    return spans


def plan_bytes(
    chunks: Sequence[Chunk],
    *,
    num_asked: Mapping[Chunk, int],
    adapters: Mapping[Chunk, int],
    logits_follow: bool,
    block_size: int,
    forgotten: Sequence[int] = (),
) -> bytes:
    """num_asked: see `PlannedChunk`. adapters: the numbers of those that chunks have."""
    numbers = [len(chunks), int(logits_follow), len(forgotten), *forgotten]
    for chunk in chunks:
        sequence = chunk.sequence
        blocks = sequence.blocks[: -(-chunk.stop // block_size)]
        uncut = [span for span in sequence.uncut if span[0] < chunk.stop and chunk.start < span[1]]
        spans = [(start, stop) for _, start, stop in image_spans(chunk)]
        numbers += (chunk.start, chunk.stop, len(chunk.draft), num_asked.get(chunk, 0))
        positions = chunk.axis_positions
        numbers += (
            adapters.get(chunk, _NO_ADAPTER),
            len(blocks),
            len(uncut),
            len(spans),
            0 if positions is None else _AXES,
        )
        numbers += chunk.tokens
        numbers += [] if positions is None else positions.reshape(-1).tolist()
        numbers += blocks
        for span in (*uncut, *spans):
            numbers += span
    return np.array(numbers, dtype=np.int32).tobytes()


def parsed_plan(payload: bytes, adapters: Mapping[int, Adapter]) -> StepPlan:
    """From `plan_bytes`. adapters: those that are loaded, by number."""
    numbers: list[int] = np.frombuffer(payload, dtype=np.int32).tolist()
    count, logits_follow, num_forgotten = numbers[:3]
    at = 3 + num_forgotten
    chunks: list[PlannedChunk] = []
    all_spans: list[list[tuple[int, int]]] = []

    def pairs(number: int) -> list[tuple[int, int]]:
        nonlocal at
        flat = numbers[at : at + 2 * number]
        at += 2 * number
        return list(zip(flat[::2], flat[1::2], strict=True))

    for _ in range(count):
        start, stop, drafted, asked, adapter, num_blocks, num_uncut, num_spans, axes = numbers[at : at + _CHUNK_FIELDS]
        at += _CHUNK_FIELDS
        tokens = tuple(numbers[at : at + stop - start])
        at += stop - start
        along_axes = tuple(numbers[at : at + axes * len(tokens)])
        at += len(along_axes)
        sequence = EngineSequence(_NOBODY, 0, 0, frozenset(), 1)
        sequence.blocks = numbers[at : at + num_blocks]
        at += num_blocks
        sequence.uncut = tuple(pairs(num_uncut))
        if adapter != _NO_ADAPTER:
            sequence.adapter = adapters[adapter]
        all_spans.append(pairs(num_spans))
        draft = tokens[len(tokens) - drafted :]
        chunks.append(PlannedChunk(sequence, start, stop, draft, tokens, asked, along_axes))
    return StepPlan(chunks, bool(logits_follow), numbers[3 : 3 + num_forgotten], all_spans)


def parsed_pairs(payload: bytes) -> list[tuple[int, int]]:
    """Of blocks to copy, from and to."""
    return [(source, target) for source, target in np.frombuffer(payload, dtype=np.int32).reshape(-1, 2).tolist()]
