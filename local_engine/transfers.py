"""Numbers on their way between host and device without a wait for either."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Fetched", "to_device"]


def to_device(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """Copied there behind what the device has to do, from pinned memory, which torch reuses once the copy is done."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Fetched:
    """Tensors of one device on their way to the host. The copies follow what the device was given before."""

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors
        self._done: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._tensors = tuple(
                torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
                for tensor in tensors
            )
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record()

    def wait(self) -> tuple[Tensor, ...]:
        """The tensors on the host. Raises what the device raises."""
        if self._done is not None:
            self._done.synchronize()
        return self._tensors
