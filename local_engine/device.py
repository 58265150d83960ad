"""Which device the engine runs on."""

import torch

from local_engine.errors import InvalidInput
from local_engine.kernels.dispatch import choose_kernels, device_facts, gpu_line, no_kernels

__all__ = ["check_device", "gpu_kernels", "pick_device"]


def pick_device(wanted: str) -> str:
    """The torch device for `auto`, `cpu` or `cuda`: auto takes the GPU if there is one."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def check_device(device: str) -> None:
    """Raises InvalidInput for a device that is not there."""
    try:
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError) as error:  # torch asserts when it was built without the device
        raise InvalidInput("device", f"{device!r} cannot be used: {error}".splitlines()[0]) from error


def gpu_kernels() -> str:
    """What computes on the first GPU, operation by operation, or why kernels do not, in one line."""
    if not torch.cuda.is_available():
        return "no GPU is found"
    facts = device_facts(torch.device("cuda"))
    reason = no_kernels(facts, "auto")
    return f"torch computes: {reason}" if reason is not None else gpu_line(facts, choose_kernels(facts).choices)
