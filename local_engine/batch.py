"""One step's chunks as tensors: tokens, positions, where keys go, and which rows need logits.

The only module that turns block lists into slots.
"""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.adapters import Adapter
from local_engine.attention_config import Sections, Window
from local_engine.block_allocator import PADDING_BLOCK
from local_engine.chunk import Chunk
from local_engine.layers.attention import AttentionGroup, AttentionPlan, AttentionPlans
from local_engine.layers.lora import AdapterRows
from local_engine.layers.recurrent_state import StateRows, StateRun

__all__ = ["Batch", "adapter_rows", "build_batch", "place_images", "positions_of"]

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """T rows over all chunks, in the order of `chunks`, with first_row[i] the first row of chunks[i].

    states: of which sequence's state each row makes which next, for models with recurrent layers.

    token_ids: [T] int64. positions: [T] int64, or [T, 3] where `images.axis_positions` has some.
    Decoding chunks come first, those of similar length side by side.
    """

    chunks: tuple[Chunk, ...]
    first_row: tuple[int, ...]
    token_ids: Tensor
    positions: Tensor
    plans: AttentionPlans
    states: StateRows


def build_batch(
    chunks: SequenceOf[Chunk],
    *,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
    windows: Collection[Window] = (None,),
) -> Batch:
    """The tensors of one step, on `device`; attention masks in `dtype`.

    windows: those of the model's layers; the batch has a plan for each. Slots that none of a chunk's rows sees are left
    out. Rows of one span of `Sequence.uncut`, which a chunk has whole, see each other.
    """
    decodes = sorted((c for c in chunks if c.stop - c.start == 1), key=lambda chunk: chunk.stop)
    prefills = [c for c in chunks if c.stop - c.start > 1]
    ordered = (*decodes, *prefills)
    first_row: list[int] = []
    tokens: list[int] = []
    for chunk in ordered:
        first_row.append(len(tokens))
        tokens += chunk.tokens
    write_slots = np.concatenate([_slots(chunk, block_size)[chunk.start :] for chunk in ordered])

    longest = max(chunk.stop for chunk in ordered)
    targets = torch.from_numpy(write_slots).to(device)
    # A window that reaches to the beginning of every sequence is none, so that its plan is not made twice.
    limits = {window: window if _first_seen(longest - 1, window) > 0 else None for window in windows}
    planned = {
        limit: AttentionPlan(targets, _groups(decodes, prefills, block_size, limit, device=device, dtype=dtype))
        for limit in set(limits.values())
    }
    return Batch(
        chunks=ordered,
        first_row=tuple(first_row),
        token_ids=torch.tensor(tokens, device=device),
        positions=torch.from_numpy(positions_of(ordered)).to(device),
        plans={window: planned[limit] for window, limit in limits.items()},
        states=_state_rows(decodes, prefills, device),
    )


def adapter_rows(
    chunks: SequenceOf[Chunk], first_row: SequenceOf[int], num_rows: int, device: torch.device
) -> tuple[AdapterRows, ...]:
    """Which rows of a step each of its LoRA adapters changes; empty where no sequence has one."""
    rows: dict[Adapter, list[int]] = {}
    for chunk, first in zip(chunks, first_row, strict=True):
        if chunk.sequence.adapter is not None:
            rows.setdefault(chunk.sequence.adapter, []).extend(range(first, first + chunk.stop - chunk.start))
    return tuple(
        AdapterRows(adapter.deltas, None if len(own) == num_rows else torch.tensor(own, device=device))
        for adapter, own in rows.items()
    )


def place_images(chunks: SequenceOf[Chunk], first_row: SequenceOf[int], hidden: Tensor) -> list[slice]:
    """Writes what images are made of over the embeddings [T, width] of the tokens that stand for them.

    Returns the rows that it wrote.
    """
    placed = []
    for chunk, first in zip(chunks, first_row, strict=True):
        for image in chunk.sequence.images:
            start, stop = max(image.start, chunk.start), min(image.stop, chunk.stop)
            if start < stop:
                rows = slice(first + start - chunk.start, first + stop - chunk.start)
                hidden[rows] = image.rows[start - image.start : stop - image.start]
                placed.append(rows)
    return placed


def positions_of(chunks: SequenceOf[Chunk]) -> Indices:
    """As `Batch.positions`."""
    plain = [np.arange(chunk.start, chunk.stop) for chunk in chunks]
    along_axes = [chunk.axis_positions for chunk in chunks]
    if all(positions is None for positions in along_axes):
        return np.concatenate(plain)
    return np.concatenate(
        [
            np.repeat(numbers[:, None], 3, axis=1) if positions is None else positions
            for numbers, positions in zip(plain, along_axes, strict=True)
        ]
    )


def _state_rows(decodes: list[Chunk], prefills: list[Chunk], device: torch.device) -> StateRows:
    runs = []
    row = len(decodes)
    for chunk in prefills:
        stop = row + chunk.stop - chunk.start
        runs.append(StateRun(row, stop, chunk.sequence.state, chunk.sequence.next_state))
        row = stop
    return StateRows(
        sources=torch.tensor([chunk.sequence.state for chunk in decodes], dtype=torch.int64, device=device),
        targets=torch.tensor([chunk.sequence.next_state for chunk in decodes], dtype=torch.int64, device=device),
        runs=tuple(runs),
    )


def _groups(
    decodes: list[Chunk],
    prefills: list[Chunk],
    block_size: int,
    window: Window,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[AttentionGroup, ...]:
    """The groups of one window: decoding chunks of similar length together, each prefilling one by itself."""
    groups: list[AttentionGroup] = []
    row = 0
    for _, alike in groupby(decodes, key=lambda chunk: _length_class(chunk.stop - _first_seen(chunk.start, window))):
        members = list(alike)
        slots, visible = _decode_slots(members, block_size, window)
        mask = None if visible is None else visible[:, None, None, :]
        groups.append(_group(row, len(members), slots, mask, device=device, dtype=dtype))
        row += len(members)
    for chunk in prefills:
        first = _first_seen(chunk.start, window)
        queries, keys = np.arange(chunk.start, chunk.stop)[:, None], np.arange(first, chunk.stop)
        seen = keys <= queries
        for start, stop in chunk.sequence.uncut:
            seen |= (start <= queries) & (queries < stop) & (start <= keys) & (keys < stop)
        if isinstance(window, Sections):
            seen &= keys // window.size == queries // window.size
        elif window is not None:
            seen &= keys > queries - window
        slots = _slots(chunk, block_size)[first:]
        groups.append(_group(row, 1, slots, seen[None, None], device=device, dtype=dtype))
        row += chunk.stop - chunk.start
    return tuple(groups)


def _group(
    row: int,
    num_sequences: int,
    slots: Indices,
    visible: npt.NDArray[np.bool_] | None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> AttentionGroup:
    mask = None
    num_rows = num_sequences
    if visible is not None:
        shown = torch.from_numpy(visible).to(device)
        mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(~shown, -torch.inf)
        num_rows = num_sequences * visible.shape[2]
    flat = slots.reshape(-1)
    first, last = int(flat[0]), int(flat[-1])
    if last - first == len(flat) - 1 and bool((np.diff(flat) == 1).all()):
        return AttentionGroup(row, row + num_rows, num_sequences, slice(first, last + 1), mask)
    return AttentionGroup(row, row + num_rows, num_sequences, torch.from_numpy(flat).to(device), mask)


def _length_class(length: int) -> int:
    """Equal for lengths within a factor of two, so that padding a group at most doubles its work."""
    return ((length - 1) // 64).bit_length()


def _first_seen(position: int, window: Window) -> int:
    """The first position that a row attends to."""
    if isinstance(window, Sections):
        return position // window.size * window.size
    return 0 if window is None else max(0, position + 1 - window)


def _slots(chunk: Chunk, block_size: int) -> Indices:
    """The slot of each position from 0 to the chunk's end: [S]."""
    table = np.asarray(chunk.sequence.blocks, dtype=np.int64)
    return (table[:, None] * block_size + np.arange(block_size)).reshape(-1)[: chunk.stop]


def _decode_slots(chunks: list[Chunk], block_size: int, window: Window) -> tuple[Indices, npt.NDArray[np.bool_] | None]:
    """Slots that the sequences see, padded to the longest: [B, S]; and which are real, None if all are."""
    lengths = np.asarray([chunk.stop - _first_seen(chunk.start, window) for chunk in chunks])
    longest = int(lengths.max())
    slots = np.full((len(chunks), longest), PADDING_BLOCK * block_size, dtype=np.int64)
    for row, (chunk, length) in enumerate(zip(chunks, lengths, strict=True)):
        slots[row, :length] = _slots(chunk, block_size)[-length:]
    if int(lengths.min()) == longest:
        return slots, None
    return slots, np.arange(longest) < lengths[:, None]
