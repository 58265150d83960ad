"""Ranks that are processes: torch.distributed between them, NCCL on GPUs and gloo on a CPU.

The groups are this object's own and not torch's global one, so a process may share any number of models.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, Store

__all__ = ["Control", "ProcessRanks", "connect"]

_CONNECT = timedelta(seconds=60)
# Of one operation on tensors: others may still compile kernels.
_OPERATION = timedelta(minutes=30)
# Of a rank that waits for the next message, which is as long as nobody asks the model anything.
_IDLE = timedelta(days=3650)

_HEAD = 8
_FRAME = 1 << 14


class _Work(Protocol):
    def wait(self) -> object: ...


class _Group(Protocol):
    """What is used of torch's process groups, whose classes have no common root that says it."""

    def allreduce(self, tensors: Sequence[Tensor]) -> _Work: ...
    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> _Work: ...
    def gather(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: dist.GatherOptions
    ) -> _Work: ...
    def broadcast(self, tensors: Sequence[Tensor], options: dist.BroadcastOptions) -> _Work: ...
    def abort(self) -> None: ...


class ProcessRanks:
    """Implements `Ranks`. ordered: sums run in the order of the ranks, whatever the number of rows beside a row.

    On a GPU nothing here waits: operations follow what the current stream was given before, and may be recorded.
    """

    def __init__(self, group: _Group, *, rank: int, size: int, ordered: bool) -> None:
        self.rank = rank
        self.size = size
        self._group = group
        # Of two numbers there is one order.
        self._ordered = ordered and size > 2

    def sum(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        if not self._ordered:
            self._group.allreduce([x]).wait()
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        self._group.allgather([parts], [x]).wait()
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def join_columns(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        options = dist.GatherOptions()
        options.rootRank = 0
        parts = [torch.empty_like(x) for _ in range(self.size)] if self.rank == 0 else []
        self._group.gather([parts] if parts else [], [x], options).wait()
        return torch.cat(parts, 1) if parts else x

    def broadcast(self, x: Tensor) -> None:
        self._group.broadcast([x], _from_first()).wait()

    def abort(self) -> None:
        """Ends what waits for a rank that is gone. Any thread may call it; nothing is called after it."""
        self._group.abort()


class Control:
    """Messages of rank 0 to all others, in one order: a kind and bytes, one broadcast each unless it is a long one."""

    def __init__(self, group: _Group) -> None:
        self._group = group

    def send(self, kind: int, payload: bytes) -> None:
        """For one thread at a time."""
        frame = torch.zeros(_FRAME, dtype=torch.uint8)
        message = kind.to_bytes(1, "little") + len(payload).to_bytes(_HEAD - 1, "little") + payload
        data = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        head = data[:_FRAME]
        frame[: len(head)] = head
        self._broadcast(frame)
        if len(data) > _FRAME:
            self._broadcast(data[_FRAME:])

    def receive(self) -> tuple[int, bytes] | None:
        """Waits. None when rank 0 is gone."""
        frame = torch.empty(_FRAME, dtype=torch.uint8)
        try:
            self._broadcast(frame)
        except RuntimeError:  # its end of the connection is closed
            return None
        data = frame.numpy().tobytes()
        kind, length = data[0], int.from_bytes(data[1:_HEAD], "little")
        rest = _HEAD + length - _FRAME
        if rest > 0:
            more = torch.empty(rest, dtype=torch.uint8)
            self._broadcast(more)
            data += more.numpy().tobytes()
        return kind, data[_HEAD : _HEAD + length]

    def _broadcast(self, data: Tensor) -> None:
        options = _from_first()
        options.timeout = _IDLE
        self._group.broadcast([data], options).wait()


def connect(
    meeting: Path, *, rank: int, size: int, device: torch.device, ordered: bool
) -> tuple[Control, ProcessRanks]:
    """Meets the other ranks of this machine by a file that all of them name. Blocks. Raises RuntimeError."""
    store = FileStore(str(meeting), size)
    store.set_timeout(_CONNECT)
    control = _gloo(PrefixStore("control", store), rank, size, _CONNECT)
    tensors: _Group
    if device.type == "cuda":
        tensors = _nccl(PrefixStore("tensors", store), rank, size)
    else:
        tensors = _gloo(PrefixStore("tensors", store), rank, size, _OPERATION)
    return Control(control), ProcessRanks(tensors, rank=rank, size=size, ordered=ordered)


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> _Group:
    gloo = cast("Any", dist.ProcessGroupGloo)
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1")]  # never an address that others can reach
    options._timeout = timeout
    return cast("_Group", gloo(store, rank, size, options))


def _nccl(store: Store, rank: int, size: int) -> _Group:
    # As gloo's: the ranks are of one machine, and nobody else is to reach them.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    nccl = cast("Any", dist.ProcessGroupNCCL)
    options = nccl.Options()
    options._timeout = _OPERATION
    return cast("_Group", nccl(store, rank, size, options))


def _from_first() -> dist.BroadcastOptions:
    options = dist.BroadcastOptions()
    options.rootRank = 0
    return options
