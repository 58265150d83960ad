"""How llama.cpp keeps a tower: in a GGUF of its own, the `mmproj` beside the decoder's (convert_hf_to_gguf and mtmd's
clip.cpp, 2026-11); and what such a file has of Siglip's.

The tower's file says nothing of tokens: they are in the vocabulary of the decoder's, by their names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.vision_config import VisionConfig

__all__ = ["Projector", "SiglipProjector", "projector_type", "token_id"]

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


class Projector(Protocol):
    """A type of such files. type: what they call it."""

    @property
    def type(self) -> str: ...

    def tower(self, fields: FieldReader, decoder: FieldReader) -> VisionConfig:
        """The shape in a tower's file. decoder: the fields of the file that it goes with. Raises ModelLoadError."""

    def names(self, vision: VisionConfig, tensor_shapes: Mapping[str, tuple[int, ...]]) -> dict[str, GgufName]:
        """Our tensor names to those of a tower's file, which has these shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiglipProjector:
    """Implements `Projector`: what a file of this type leaves to be known.

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

    def tower(self, fields: FieldReader, decoder: FieldReader) -> VisionConfig:
        """See `Projector.tower`."""
        if not fields.boolean("clip.use_gelu", False):
            fields.refuse("clip.use_gelu is false, expected true")
        start, end = (None, None) if self.around is None else self.around
        return VisionConfig(
            hidden_size=fields.integer("clip.vision.embedding_length"),
            intermediate_size=fields.integer("clip.vision.feed_forward_length"),
            num_layers=fields.integer("clip.vision.block_count"),
            num_heads=fields.integer("clip.vision.attention.head_count"),
            image_size=fields.integer("clip.vision.image_size"),
            patch_size=fields.integer("clip.vision.patch_size"),
            norm_eps=fields.number("clip.vision.attention.layer_norm_epsilon"),
            square=fields.integer("clip.vision.projector.scale_factor", self.square),
            token_id=token_id(decoder, *self.image_tokens),
            bidirectional=self.bidirectional,
            start_id=None if start is None else token_id(decoder, start),
            end_id=None if end is None else token_id(decoder, end),
        )

    def names(self, vision: VisionConfig, tensor_shapes: Mapping[str, tuple[int, ...]]) -> dict[str, GgufName]:
        """See `Projector.names`."""
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
        return names | dict(self.tensors)


def projector_type(fields: FieldReader) -> str:
    """That of a tower's file. Raises ModelLoadError for a file that is none."""
    if (kind := fields.text("general.architecture")) != "clip":
        fields.refuse(f"general.architecture is {kind!r}, expected 'clip', a tower that reads images")
    return fields.text("clip.projector_type", fields.text("clip.vision.projector_type", "none"))


def token_id(decoder: FieldReader, *names: str) -> int:
    """That of the first of these names which the decoder's vocabulary has. Raises ModelLoadError."""
    tokens = decoder.texts("tokenizer.ggml.tokens")
    found = next((name for name in names if name in tokens), None)
    if found is None:
        decoder.refuse(f"the vocabulary has no token {names[0]!r}, so it is no model that reads images")
    return tokens.index(found)
