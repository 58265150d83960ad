"""How llama.cpp keeps Siglip's tower: in a GGUF of its own, the `mmproj` beside the decoder's (convert_hf_to_gguf and
mtmd's clip.cpp, 2026-11).

The tower's file says nothing of tokens: they are in the vocabulary of the decoder's, by their names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.vision_config import VisionConfig

__all__ = ["Projector", "gguf_names", "gguf_tower", "projector_type"]

_LAYER = {
    "layer_norm1": "ln1",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "layer_norm2": "ln2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_SWAPPED = {"mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up"}
"""In files of older converters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projector:
    """What a file of a projector type leaves to be known.

    square: patches a side that become one row, where the file does not say. tensors: ours of the projection.
    image_tokens: names of the token that stands for a row, of which the first counts that the vocabulary has.
    around: those of the tokens around an image. bidirectional: as `VisionConfig` has it.
    """

    type: str
    square: int
    tensors: Mapping[str, GgufName]
    image_tokens: Sequence[str]
    around: tuple[str, str] | None = None
    bidirectional: bool = False


def projector_type(fields: FieldReader) -> str:
    """That of a tower's file. Raises ModelLoadError for a file that is none."""
    if (kind := fields.text("general.architecture")) != "clip":
        fields.refuse(f"general.architecture is {kind!r}, expected 'clip', a tower that reads images")
    return fields.text("clip.projector_type", fields.text("clip.vision.projector_type", "none"))


def gguf_tower(fields: FieldReader, projector: Projector, decoder: FieldReader) -> VisionConfig:
    """The shape in a tower's file. decoder: the fields of the file that it goes with. Raises ModelLoadError."""
    if not fields.boolean("clip.use_gelu", False):
        fields.refuse("clip.use_gelu is false, expected true")
    image_size, patch_size = fields.integer("clip.vision.image_size"), fields.integer("clip.vision.patch_size")
    patches = image_size // max(patch_size, 1)
    square = fields.integer("clip.vision.projector.scale_factor", projector.square)
    if square < 1 or patches % square:
        fields.refuse(f"clip.vision.projector.scale_factor is {square}, which does not divide {patches} patches")
    start, end = (None, None) if projector.around is None else projector.around
    return VisionConfig(
        hidden_size=fields.integer("clip.vision.embedding_length"),
        intermediate_size=fields.integer("clip.vision.feed_forward_length"),
        num_layers=fields.integer("clip.vision.block_count"),
        num_heads=fields.integer("clip.vision.attention.head_count"),
        image_size=image_size,
        patch_size=patch_size,
        norm_eps=fields.number("clip.vision.attention.layer_norm_epsilon"),
        tokens=(patches // square) ** 2,
        token_id=_token_id(decoder, *projector.image_tokens),
        bidirectional=projector.bidirectional,
        start_id=None if start is None else _token_id(decoder, start),
        end_id=None if end is None else _token_id(decoder, end),
    )


def gguf_names(
    vision: VisionConfig, projector: Projector, tensor_shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, GgufName]:
    """Our tensor names to those of a tower's file, which has these shapes."""
    parts = {
        "embeddings.patch_embedding": "patch_embd",
        "embeddings.position_embedding": "position_embd",
        "post_layernorm": "post_ln",
    }
    # A matrix is [out, in], so that what widens has inputs of the tower's width.
    swapped = tensor_shapes.get("v.blk.0.ffn_down.weight", ())[1:] == (vision.hidden_size,)
    for index in range(vision.num_layers):
        for ours, theirs in (_LAYER | _SWAPPED if swapped else _LAYER).items():
            parts[f"encoder.layers.{index}.{ours}"] = f"blk.{index}.{theirs}"
    names = {
        f"vision.{ours}.{kind}": GgufName(f"v.{theirs}.{kind}")
        for ours, theirs in parts.items()
        for kind in ("weight", "bias")
    }
    return names | dict(projector.tensors)


def _token_id(decoder: FieldReader, *names: str) -> int:
    tokens = decoder.texts("tokenizer.ggml.tokens")
    found = next((name for name in names if name in tokens), None)
    if found is None:
        decoder.refuse(f"the vocabulary has no token {names[0]!r}, so it is no model that reads images")
    return tokens.index(found)
