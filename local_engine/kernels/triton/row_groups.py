"""The rows of a step in groups by who computes them: an expert, or a LoRA adapter. A grouped product walks over these.

Each group is filled up to whole blocks, so that a block of rows meets one matrix. All sizes are those of the worst case
that the shapes allow, so the host need not know who was chosen.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import expect

__all__ = ["RowGroups", "block_rows", "group_rows", "group_rows_twin"]

_TILE = 1024


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows, owner after owner, each owner's in their order.

    rows: [blocks * block_size] int32; num_rows where a block has no row. owners: [blocks] int32, -1 for a block that
    is not needed; those stand at the end.
    """

    rows: Tensor
    owners: Tensor
    num_rows: int
    block_size: int


@triton.jit
def count_rows_kernel(owner_of, counts, num_rows, tile: tl.constexpr):
    """The rows of one owner. Grid: (owners,). Reads all N owners, from the L2 cache."""
    owner = tl.program_id(0)
    count = tl.full([tile], 0, tl.int32)
    for base in range(0, num_rows, tile):
        row = base + tl.arange(0, tile)
        count += (tl.load(owner_of + row, mask=row < num_rows, other=-1) == owner).to(tl.int32)
    tl.store(counts + owner, tl.sum(count, 0))


@triton.jit
def group_rows_kernel(
    owner_of, counts, rows, owners, num_rows, num_owners, num_blocks, block_size: tl.constexpr,
    all_owners: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """The blocks of one owner; the program behind the last owner's marks those that nobody needs.

    Grid: (owners + 1,). Reads all N owners, from the L2 cache, and writes the owner's rows. Exact, and the same in each
    run.
    """
    owner = tl.program_id(0)
    other = tl.arange(0, all_owners)
    blocks = (tl.load(counts + other, mask=other < num_owners, other=0) + block_size - 1) // block_size
    first = tl.sum(tl.where(other < owner, blocks, 0), 0)
    last = first + tl.sum(tl.where(other == owner, blocks, 0), 0)
    if owner == num_owners:
        last = num_blocks
    for base in range(first, last, tile):
        block = base + tl.arange(0, tile)
        tl.store(owners + block, tl.where(owner == num_owners, -1, owner), mask=block < last)
    place = first * block_size
    for base in range(0, num_rows, tile):
        row = base + tl.arange(0, tile)
        mine = (tl.load(owner_of + row, mask=row < num_rows, other=-1) == owner).to(tl.int32)
        tl.store(rows + place + tl.cumsum(mine, 0) - 1, row, mask=mine != 0)
        place += tl.sum(mine, 0)
    for base in range(place, last * block_size, tile):
        at = base + tl.arange(0, tile)
        tl.store(rows + at, tl.zeros_like(at) + num_rows, mask=at < last * block_size)


def group_rows(owner_of: Tensor, num_owners: int, *, block_size: int) -> RowGroups:
    """owner_of: int32 of any shape, N in all, from 0 to num_owners - 1; -1 for rows that nobody computes.

    Raises ValueError for wrong types and sizes.
    """
    expect("owner_of", owner_of, tuple(owner_of.shape), (torch.int32,))
    if num_owners < 1 or block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"expected owners, and blocks of a power of two, got {num_owners} and {block_size}")
    num_rows = owner_of.numel()
    # No group is without rows, and all but its last block are full.
    num_blocks = (num_rows + min(num_rows, num_owners) * (block_size - 1)) // block_size
    device = owner_of.device
    rows = torch.empty(num_blocks * block_size, dtype=torch.int32, device=device)
    owners = torch.empty(num_blocks, dtype=torch.int32, device=device)
    if num_rows:
        counts = torch.empty(num_owners, dtype=torch.int32, device=device)
        count_rows_kernel[(num_owners,)](owner_of, counts, num_rows, tile=_TILE, num_warps=4)
        group_rows_kernel[(num_owners + 1,)](
            owner_of,
            counts,
            rows,
            owners,
            num_rows,
            num_owners,
            num_blocks,
            block_size=block_size,
            all_owners=triton.next_power_of_2(num_owners),
            tile=_TILE,
            num_warps=4,
        )
    return RowGroups(rows, owners, num_rows, block_size)


def block_rows(num_rows: int, num_owners: int) -> int:
    """Rows of a block: about those that an owner has on average, from the fewest that tensor cores take, 16, to 64."""
    average = num_rows // num_owners
    return 16 if average <= 16 else 32 if average <= 32 else 64


def group_rows_twin(owner_of: Tensor, num_owners: int, *, block_size: int) -> RowGroups:
    """See `group_rows`; as many blocks as are needed."""
    flat = owner_of.flatten().tolist()
    rows: list[int] = []
    owners: list[int] = []
    for owner in range(num_owners):
        mine = [row for row, its_owner in enumerate(flat) if its_owner == owner]
        mine += [len(flat)] * (-len(mine) % block_size)
        rows += mine
        owners += [owner] * (len(mine) // block_size)
    device = owner_of.device
    return RowGroups(
        torch.tensor(rows, dtype=torch.int32, device=device),
        torch.tensor(owners, dtype=torch.int32, device=device),
        len(flat),
        block_size,
    )
