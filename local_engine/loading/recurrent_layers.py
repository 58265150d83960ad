"""Which layers of a GGUF have a state in place of attention, and steps of time. Knows no architecture."""

import math

from local_engine.loading.fields import FieldReader

__all__ = ["gguf_recurrent_layers", "hf_without_step_limits"]


def gguf_recurrent_layers(fields: FieldReader, architecture: str) -> tuple[FieldReader, frozenset[int]]:
    """Those without kv heads, of a file that has their number a layer, and the fields with the one of the other layers.

    Raises ModelLoadError where no layer has attention, or layers have different numbers of kv heads.
    """
    name = f"{architecture}.attention.head_count_kv"
    counts, num_layers = fields.integers(name), fields.integer(f"{architecture}.block_count")
    if len(counts) != num_layers:
        fields.refuse(f"{name} has {len(counts)} items for {num_layers} layers")
    if len(attending := set(counts) - {0}) != 1:
        fields.refuse(f"{name} has {len(attending)} numbers of kv heads, expected one")
    layers = frozenset(index for index, count in enumerate(counts) if not count)
    return fields.without(name).with_defaults({name: attending.pop()}), layers


def hf_without_step_limits(fields: FieldReader) -> None:
    """Raises ModelLoadError if config.json bounds the steps of time of Mamba's layers."""
    if (limits := fields.numbers("time_step_limit")) and limits != (0.0, math.inf):
        fields.refuse(f"time_step_limit is {list(limits)}, supported is no limit")
