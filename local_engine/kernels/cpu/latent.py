"""Latent attention as the kernels want it, beside the matrices that every layer has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.kernels.cpu.packing import MatrixPacker
from local_engine.kernels.cpu.structures import LatentStruct
from local_engine.layer_config import LatentConfig
from local_engine.loading.weights import Weights
from local_engine.models.latent_attention import NORM_EPS, split_heads

__all__ = ["LatentParts", "latent_parts", "unsupported_latent"]

_LANES = 32


def unsupported_latent(latent: LatentConfig) -> str | None:
    """Why the kernels cannot run attention of this shape, or None."""
    for name, value in (
        ("kv_lora_rank", latent.rank),
        ("q_lora_rank", latent.query_rank),
        ("qk_nope_head_dim", latent.plain_dim),
        ("qk_rope_head_dim", latent.turning_dim),
        ("v_head_dim", latent.value_dim),
    ):
        if value % _LANES:
            return f"{name} {value}, which is no multiple of {_LANES}"
    return None


@dataclass(frozen=True, slots=True)
class LatentParts:
    """inputs: names and rows of the matrices that read the normed rows. output: the one that reads `columns` numbers.

    queries: the site by which adapters know the matrix that makes queries of compressed vectors; empty without one.
    """

    inputs: Mapping[str, int]
    output: str
    columns: int
    queries: str
    struct: LatentStruct


def latent_parts(
    config: ModelConfig,
    latent: LatentConfig,
    index: int,
    weights: Weights,
    packer: MatrixPacker,
    address: Callable[[Tensor], int],
) -> LatentParts:
    """That of layer `index`. address: of a copy that is kept. Raises ModelLoadError and NotPackable."""
    name, heads, rank = f"model.layers.{index}.self_attn", config.num_heads, latent.rank
    struct = LatentStruct(norm=address(weights.flat(f"{name}.kv_a_layernorm.weight", rank)), eps=NORM_EPS)
    if weights.has(f"{name}.k_b_proj.weight"):
        struct.keys = packer.matrix(f"{name}.k_b_proj.weight", heads, rank, latent.plain_dim)
        struct.values = packer.matrix(f"{name}.v_b_proj.weight", heads, latent.value_dim, rank)
    else:
        rows = heads * (latent.plain_dim + latent.value_dim)
        split = partial(split_heads, shape=latent)
        struct.keys, struct.values = packer.rearranged(f"{name}.kv_b_proj.weight", rows, rank, split)
    inputs = {f"{name}.kv_a_proj_with_mqa": config.head_dim}
    query_rows, site = heads * (latent.plain_dim + latent.turning_dim), ""
    if latent.query_rank:
        inputs[f"{name}.q_a_proj"] = latent.query_rank
        struct.query_norm = address(weights.flat(f"{name}.q_a_layernorm.weight", latent.query_rank))
        struct.queries = packer.matrix(f"{name}.q_b_proj.weight", query_rows, latent.query_rank)
        site = weights.lora_sites.register({f"{name}.q_b_proj": query_rows}, latent.query_rank).name
    else:
        inputs[f"{name}.q_proj"] = query_rows
    return LatentParts(inputs, f"{name}.o_proj", heads * latent.value_dim, site, struct)
