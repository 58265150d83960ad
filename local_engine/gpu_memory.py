"""How much memory of a device the KV pool takes."""

import torch

from local_engine.config import EngineConfig

__all__ = ["kv_pool_bytes"]


def kv_pool_bytes(config: EngineConfig, *, reserved_bytes: int = 0) -> int:
    """Bytes for the KV pool: `kv_bytes`, or on a GPU `kv_share` of what is free now.

    reserved_bytes: what a step needs besides, and does not hold now. Memory that torch keeps for itself and does not
    use counts as free.
    """
    device = torch.device(config.device)
    if config.kv_share is None or device.type != "cuda":
        return config.kv_bytes
    free_bytes, _ = torch.cuda.mem_get_info(device)
    unused_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(int((free_bytes + unused_bytes) * config.kv_share) - reserved_bytes, 0)
