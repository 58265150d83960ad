"""The states of recurrent layers on torch's device: so many slots in each of them. Knows no sequences."""

import math

import torch

from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import InvalidInput
from local_engine.layers.recurrent_state import LayerState

__all__ = ["StatePool", "state_bytes", "state_slots"]

_DTYPE = torch.float32
# Beside those that as many sequences as may run read and write: what the prefix cache finds them by.
_SNAPSHOTS = 64
# One that is read, one that is written, and the one of zeros.
_LEAST_SLOTS = 3


def state_bytes(model: ModelConfig) -> int:
    """Bytes of one slot over all recurrent layers; 0 of a model that has none."""
    if model.recurrent is None:
        return 0
    return len(model.recurrent.layers) * sum(map(math.prod, model.recurrent.state_shapes)) * _DTYPE.itemsize


def state_slots(model: ModelConfig, config: EngineConfig, num_bytes: int) -> int:
    """Slots of a pool that has `num_bytes` for keys, values and states: what it can use, in half of that at most."""
    if not (slot_bytes := state_bytes(model)):
        return 0
    return min(2 * config.max_sequences + _SNAPSHOTS + 1, num_bytes // 2 // slot_bytes)


class StatePool:
    """Slots 1 to num_states, and slot 0, which stays zero; none at all for a model without recurrent layers.

    num_bytes: of keys, values and states. Raises InvalidInput where that is too little, or more than the device has.
    """

    def __init__(self, model: ModelConfig, config: EngineConfig, num_bytes: int) -> None:
        slots = state_slots(model, config, num_bytes)
        self.num_bytes = slots * state_bytes(model)
        self.num_states = max(slots - 1, 0)
        self.layers: list[LayerState] = []
        if model.recurrent is None:
            return
        if slots < _LEAST_SLOTS:
            least = 2 * _LEAST_SLOTS * state_bytes(model)
            raise InvalidInput("kv_bytes", f"must be at least {least} bytes for this model's states, not {num_bytes}")
        device = torch.device(config.device)
        for _ in model.recurrent.layers:
            try:
                # Empty, so that memory of slots that are never used is never touched.
                parts = tuple(
                    torch.empty(slots, *shape, dtype=_DTYPE, device=device) for shape in model.recurrent.state_shapes
                )
            except (MemoryError, RuntimeError) as error:
                raise InvalidInput("kv_bytes", f"{num_bytes} bytes do not fit on {device}") from error
            for part in parts:
                part[0] = 0
            self.layers.append(LayerState(parts))

    def close(self) -> None:
        """Gives the memory back, though others still hold the pool."""
        self.layers.clear()
