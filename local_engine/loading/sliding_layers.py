"""Which layers of a model have a sliding window, and which turn, as files say it. Knows no architecture."""

from collections.abc import Callable

from local_engine.loading.fields import FieldReader

__all__ = ["SlidingLayers", "every_but_nth", "gguf_sliding_layers", "hf_sliding_layers", "hf_turning_layers"]

# Whether the layer of an index has the window.
SlidingLayers = Callable[[int], bool]


def every_but_nth(period: int) -> SlidingLayers:
    """All layers but the last of each `period`; 0 is all of them, 1 none."""
    return lambda index: period == 0 or (index + 1) % period != 0


def hf_sliding_layers(
    fields: FieldReader, num_layers: int, window: int | None, default: SlidingLayers
) -> SlidingLayers:
    """From layer_types of config.json, one word a layer; `default` where it is absent. Raises ModelLoadError.

    window: the one that such layers have; None is a model without.
    """
    words = fields.texts("layer_types")
    if words and len(words) != num_layers:
        fields.refuse(f"layer_types has {len(words)} items for {num_layers} layers")
    if other := set(words) - {"full_attention", "sliding_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported are full_attention and sliding_attention")
    if window is None:
        if "sliding_attention" in words:
            fields.refuse("layer_types has 'sliding_attention', but the model has no sliding window")
        return lambda _: False
    return (lambda index: words[index] == "sliding_attention") if words else default


def hf_turning_layers(fields: FieldReader, num_layers: int, interval: int) -> Callable[[int], bool]:
    """Whether the layer of an index has rope, from config.json. Raises ModelLoadError.

    interval: of the layers without, where the file does not say.
    """
    turns = fields.integers("no_rope_layers")  # despite its name, 1 for a layer with rope
    if turns and len(turns) < num_layers:
        fields.refuse(f"no_rope_layers has {len(turns)} items for {num_layers} layers")
    interval = fields.integer("no_rope_layer_interval", interval)
    if not turns and interval < 1:
        fields.refuse(f"no_rope_layer_interval is {interval}, expected 1 or more")
    return (lambda index: turns[index] != 0) if turns else every_but_nth(interval)


def gguf_sliding_layers(
    fields: FieldReader, architecture: str, num_layers: int, default: SlidingLayers
) -> SlidingLayers:
    """From the key sliding_window_pattern of a GGUF: a period, or one flag a layer. Raises ModelLoadError."""
    name = f"{architecture}.attention.sliding_window_pattern"
    if not fields.given(name):
        return default
    pattern = fields.flags_or_integer(name)
    if isinstance(pattern, int):
        return every_but_nth(pattern)
    if len(pattern) != num_layers:
        fields.refuse(f"{name} has {len(pattern)} items for {num_layers} layers")
    return lambda index: pattern[index]
