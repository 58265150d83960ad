"""What the registry knows of one architecture: its names, and the functions that read its files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from local_engine.config import ModelConfig
from local_engine.images import EncodeImage
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import llama
from local_engine.models.decoder import BuildMlp, Decoder, dense_mlp
from local_engine.models.mmproj import Projector
from local_engine.models.sparse_mlp import ExpertNames, dense_or_sparse_mlp

__all__ = ["Architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder: the names that files know it by, how its configuration reads, and how it is built.

    Rows that share a gguf_name and gguf_experts, whether such a file has experts, read it with the same functions.
    hf_places: of tensors that safetensors have by other names, in another order or in stacks. hf_prefixes: what names
    of tensors begin with there, and with us. hf_left_out: what they begin with of parts that nothing here reads.
    expert_names: of a sparse model. build_mlp: of one without, whose feed-forward blocks may be its own.
    build_tower: of a model that reads images. projector: of the GGUF that such a tower has for itself.
    """

    gguf_name: str
    hf_names: tuple[str, ...]
    hf_config: Callable[[FieldReader], ModelConfig]
    gguf_config: Callable[[FieldReader, Mapping[str, tuple[int, ...]]], ModelConfig]
    gguf_names: Callable[[ModelConfig], dict[str, GgufName]] = llama.gguf_names
    expert_names: ExpertNames | None = None
    build_mlp: BuildMlp = dense_mlp
    hf_places: Callable[[ModelConfig], Mapping[str, HfName | HfRows]] = llama.hf_places
    gguf_experts: bool = False
    hf_prefixes: Mapping[str, str] = field(default_factory=dict)
    hf_left_out: tuple[str, ...] = ()
    build_tower: Callable[[ModelConfig, Weights], EncodeImage] | None = None
    projector: Projector | None = None

    def build(self, config: ModelConfig, weights: Weights, ops: Ops) -> Decoder:
        """A model with all its weights read. Raises ModelLoadError naming a missing or misshapen tensor."""
        names = self.expert_names
        build_mlp = self.build_mlp if names is None else partial(dense_or_sparse_mlp, names)
        return Decoder(config, weights, ops, build_mlp=build_mlp)
