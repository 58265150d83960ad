"""How GGUFs describe Mamba-2's layers: keys under an architecture's name, and names of tensors."""

from collections.abc import Mapping

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.recurrent_config import Mamba2Config

__all__ = ["gguf_mamba2", "gguf_mamba2_names"]

_PARTS = {
    **{f"in_proj.{kind}": f"ssm_in.{kind}" for kind in ("weight", "bias")},
    **{f"conv1d.{kind}": f"ssm_conv1d.{kind}" for kind in ("weight", "bias")},
    **{f"out_proj.{kind}": f"ssm_out.{kind}" for kind in ("weight", "bias")},
    "dt_bias": "ssm_dt.bias",
    "A": "ssm_a",
    "D": "ssm_d",
    "norm.weight": "ssm_norm.weight",
}


def gguf_mamba2(
    fields: FieldReader,
    architecture: str,
    layers: frozenset[int],
    tensor_shapes: Mapping[str, tuple[int, ...]],
    *,
    norm_eps: float,
) -> Mamba2Config:
    """The shape of these layers; norm_eps is of the norm that they may have. Raises ModelLoadError."""
    heads = fields.integer(f"{architecture}.ssm.time_step_rank")
    return Mamba2Config(
        layers=layers,
        taps=fields.integer(f"{architecture}.ssm.conv_kernel"),
        heads=heads,
        head_dim=fields.integer(f"{architecture}.ssm.inner_size") // max(heads, 1),
        groups=fields.integer(f"{architecture}.ssm.group_count"),
        state_size=fields.integer(f"{architecture}.ssm.state_size"),
        norm_eps=norm_eps if any(name.endswith("ssm_norm.weight") for name in tensor_shapes) else None,
        bias=any(name.endswith("ssm_in.bias") for name in tensor_shapes),
        conv_bias=any(name.endswith("ssm_conv1d.bias") for name in tensor_shapes),
    )


def gguf_mamba2_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our names of the tensors of these layers to those of a GGUF."""
    return {
        f"model.layers.{index}.mamba.{ours}": GgufName(f"blk.{index}.{theirs}")
        for index in filter(config.is_recurrent, range(config.num_layers))
        for ours, theirs in _PARTS.items()
    }
