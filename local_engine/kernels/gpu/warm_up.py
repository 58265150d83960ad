"""What the largest step of a model takes of a device's memory: computed once, before the KV pool takes the rest."""

import torch

from local_engine.config import EngineConfig
from local_engine.kernels.gpu.decoder import FusedDecoder, StepTensors
from local_engine.kv_pool import KvPool, kv_block_bytes

__all__ = ["largest_step", "step_bytes"]


def largest_step(num_rows: int, *, block_size: int, device: torch.device) -> StepTensors:
    """One prompt of so many tokens that writes to no block and reads the padding block only."""
    rows = torch.zeros(2, num_rows, dtype=torch.int64, device=device)
    return StepTensors(
        token_ids=rows[0],
        positions=torch.arange(num_rows, device=device),
        slots=rows[1] - 1,
        block_tables=torch.zeros(1, -(-num_rows // block_size), dtype=torch.int32, device=device),
        lengths=torch.empty(0, dtype=torch.int32, device=device),
        prompt_lengths=torch.tensor([num_rows], dtype=torch.int32, device=device),
        num_decodes=0,
        query_starts=torch.tensor([0, num_rows], dtype=torch.int32, device=device),
        max_queries=num_rows,
    )


@torch.inference_mode()
def step_bytes(model: FusedDecoder, config: EngineConfig) -> int:
    """Bytes that a step of `max_batch_tokens` tokens and `max_sequences` rows of logits takes beside the weights.

    Compiles kernels on the way. 0 on a CPU, where neither is needed.
    """
    device = torch.device(config.device)
    if device.type != "cuda":
        return 0
    pool = KvPool(model.config, config, 2 * kv_block_bytes(model.config, config))
    num_rows = min(config.max_batch_tokens, model.config.max_context)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step = largest_step(num_rows, block_size=config.block_size, device=device)
    _, normed = model.forward(step, pool.caches, block_size=config.block_size)
    # Logits are there three times more while they are drawn from: as float32, scaled and sorted.
    logits = model.logits(normed[: config.max_sequences])
    taken = torch.cuda.max_memory_allocated(device) - before + 3 * logits.numel() * torch.float32.itemsize
    del step, normed, logits
    pool.close()
    torch.cuda.empty_cache()
    return taken
