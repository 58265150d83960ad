"""Which device the engine runs on."""

import torch

from local_engine.errors import InvalidInput

__all__ = ["check_device", "pick_device"]


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
