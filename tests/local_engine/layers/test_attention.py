"""Paged attention against the plain formula over the sequence's own keys and values."""

from dataclasses import dataclass

import pytest
import torch

from local_engine.attention_config import Sections, Window
from local_engine.batch import build_batch
from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest
from local_engine.layers.attention import LayerCache, paged_attention
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

HEADS, KV_HEADS, DIM, BLOCK = 6, 2, 8, 4


@dataclass(frozen=True)
class Scores:
    """What is done to the scores before the softmax."""

    scale: float | None = None
    soft_cap: float | None = None
    sinks: torch.Tensor | None = None

    def weights(self, dots: torch.Tensor, head: int) -> torch.Tensor:
        """The weights of a row, by the definition. dots: queries times keys, [S]."""
        scores = dots / DIM**0.5 if self.scale is None else dots * self.scale
        if self.soft_cap is not None:
            scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
        exponents = scores.double().exp()
        total = exponents.sum() + (0 if self.sinks is None else self.sinks[head].double().exp())
        return (exponents / total).float()


def expected_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, start: int, window: Window, scores: Scores
) -> torch.Tensor:
    """q [Q, H, D] at positions start on, k and v [S, K, D] -> [Q, H * D], by the definition."""
    share = HEADS // KV_HEADS
    rows = []
    for index in range(q.shape[0]):
        stop = start + index + 1
        if isinstance(window, Sections):
            seen = slice((stop - 1) - (stop - 1) % window.size, stop)
        else:
            seen = slice(0 if window is None else max(0, stop - window), stop)
        heads = []
        for head in range(HEADS):
            heads.append(scores.weights(k[seen, head // share] @ q[index, head], head) @ v[seen, head // share])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("window", [None, 1, 4, 7, 500, Sections(1), Sections(4), Sections(6), Sections(500)])
@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1)],
        [(0, 9)],
        [(5, 6), (5, 6)],
        [(2, 3), (8, 9), (70, 71), (3, 9)],
        [(0, 3), (4, 11), (200, 201), (12, 13)],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "scores",
    [
        Scores(),
        Scores(scale=0.9),
        Scores(soft_cap=0.8),
        Scores(sinks=torch.linspace(-2, 3, HEADS)),
        Scores(scale=0.7, soft_cap=1.5, sinks=torch.linspace(4, -4, HEADS)),
    ],
    ids=["plain", "scale", "soft_cap", "sinks", "all"],
)
def test_each_row_attends_to_its_own_past_and_to_nothing_else(
    spans: list[tuple[int, int]], window: Window, scores: Scores
) -> None:
    torch.manual_seed(0)
    blocks = [-(-stop // BLOCK) for _, stop in spans]
    numbers = (torch.randperm(sum(blocks)) + 2).tolist()  # block 1 belongs to nobody
    slots = BLOCK * (len(numbers) + 2)
    # Whatever a block held before is not a number; only the padding block is zero.
    keys, values = (torch.full((slots, KV_HEADS, DIM), torch.nan) for _ in range(2))
    keys[:BLOCK] = values[:BLOCK] = 0
    chunks: list[Chunk] = []
    past: dict[Chunk, torch.Tensor] = {}
    for (start, stop), count in zip(spans, blocks, strict=True):
        sequence = Sequence(GenerationRequest("r", (1,) * stop, SamplingParams()), len(chunks), 0, frozenset(), 1)
        sequence.blocks = [numbers.pop() for _ in range(count)]
        chunk = Chunk(sequence, start, stop)
        chunks.append(chunk)
        past[chunk] = torch.randn(2, stop, KV_HEADS, DIM)
        for position in range(start):
            slot = sequence.blocks[position // BLOCK] * BLOCK + position % BLOCK
            keys[slot], values[slot] = past[chunk][:, position]
    batch = build_batch(chunks, block_size=BLOCK, device=torch.device("cpu"), dtype=torch.float32, windows=[window])
    q = torch.randn(len(batch.token_ids), HEADS, DIM)
    new = torch.cat([past[chunk][:, chunk.start : chunk.stop] for chunk in batch.chunks], 1)
    attended = paged_attention(
        q,
        new[0],
        new[1],
        LayerCache(keys, values),
        batch.plans[window],
        scale=scores.scale,
        soft_cap=scores.soft_cap,
        sinks=scores.sinks,
    )
    for chunk, row in zip(batch.chunks, batch.first_row, strict=True):
        queries = q[row : row + chunk.stop - chunk.start]
        keys, values = past[chunk]
        expected = expected_rows(queries, keys, values, start=chunk.start, window=window, scores=scores)
        torch.testing.assert_close(attended[row : row + len(queries)], expected, atol=1e-5, rtol=1e-5)
