"""Where a local model lies while it is loaded."""

from msgspec import Struct

__all__ = ["ModelMemory"]


class ModelMemory(Struct, frozen=True, kw_only=True):
    """`size` in bytes, `vram` of them on a GPU. `expires_at`: Unix seconds at which it leaves memory, unless a request
    comes before; None: it stays."""

    size: int = 0
    vram: int = 0
    expires_at: float | None = None
