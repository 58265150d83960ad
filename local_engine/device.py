"""Which device the engine runs on."""

import torch

__all__ = ["pick_device"]


def pick_device(wanted: str) -> str:
    """The torch device for `auto`, `cpu` or `cuda`: auto takes the GPU if there is one."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"
