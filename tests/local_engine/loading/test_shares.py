"""Every rank's share of every tensor, in every format, is the part that the table names; together they are all."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from local_engine.config import EngineConfig, ModelConfig
from local_engine.layer_config import ExpertsConfig, LatentConfig
from local_engine.layers.ops import REFERENCE
from local_engine.layers.ranks import Ranks
from local_engine.layers.share import Share
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf_parts import open_gguf
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.load import load_model, model_shape
from local_engine.loading.packed.quantization import packing_of
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.shares import Shares, share_problem
from local_engine.loading.weights import TensorSource, Weights
from local_engine.models.decoder import Decoder
from local_engine.models.registry import by_gguf_name, by_hf_name
from tests.local_engine.loading.packed.packed_files import Parts, packed_model
from tests.local_engine.loading.packed.test_fp8 import E4M3, eight_bit, numbers
from tests.local_engine.loading.packed.test_grouped import AWQ_CONFIG, GPTQ_CONFIG, awq, gptq
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.peak_memory import peak_bytes
from tests.local_engine.thread_ranks import on_ranks
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

CPU = torch.device("cpu")
SHAPE = ModelConfig("llama", 10, 16, 12, 1, 4, 2, 4, 64)


@dataclass(frozen=True)
class Rank:
    """A rank that computes nothing with others."""

    rank: int
    size: int

    def sum(self, x: Tensor) -> Tensor:
        return x

    def join_columns(self, x: Tensor) -> Tensor:
        return x

    def broadcast(self, x: Tensor) -> None:
        pass


def written(kind: str, folder: Path) -> Path:
    """A tiny model in a format."""
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    packings: dict[str, tuple[Callable[[Tensor], Parts], dict[str, Any]]] = {
        "gptq": (lambda weight: gptq(weight, bits=4, group_size=16), GPTQ_CONFIG | {"group_size": 16}),
        "gptq_act_order": (lambda weight: gptq(weight, bits=4, group_size=32, act_order=True), GPTQ_CONFIG),
        "awq": (lambda weight: awq(weight, group_size=16), AWQ_CONFIG | {"group_size": 16}),
        "fp8_blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [16, 16]}),
        "fp8_rows": (fp8_rows, {"quant_method": "fp8"}),
    }
    if kind in packings:
        packed_model(folder, *packings[kind])
        return folder
    if kind.endswith("ForCausalLM"):
        return write_safetensors(oracle_of(kind), folder)
    matrix_type = GGMLQuantizationType[kind.removeprefix("gguf_")]
    return write_gguf(tiny_oracle(3, **sizes), folder / "model.gguf", matrix_type=matrix_type)


def fp8_blocks(weight: Tensor) -> Parts:
    packed, grid = eight_bit(weight, (16, 16), E4M3)
    return {"weight": packed, "weight_scale_inv": grid}, numbers(packed, grid, (16, 16))


def fp8_rows(weight: Tensor) -> Parts:
    cell = (1, weight.shape[1])
    packed, grid = eight_bit(weight, cell, E4M3)
    return {"weight": packed, "weight_scale": grid}, numbers(packed, grid, cell)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[ModelConfig, TensorSource]]:
    shape = model_shape(path, EngineConfig())
    if path.is_file():
        architecture = by_gguf_name("llama", experts=False)
        assert architecture is not None
        with open_gguf(path) as parts:
            yield shape, GgufSource(parts, architecture.gguf_names(shape))
        return
    values = json.loads((path / "config.json").read_text(encoding="utf-8"))
    architecture = by_hf_name(values["architectures"][0])
    assert architecture is not None
    with contextlib.closing(SafetensorsSource(path)) as file:
        packing = packing_of(FieldReader(path, values))
        yield shape, PlainSource(file, packing=packing, names=architecture.hf_places(shape))


def read(source: TensorSource, name: str, share: Share) -> Tensor:
    out = torch.full(share.shape(source.shapes[name]), torch.nan)
    source.read_into(name, out, share)
    return out


# What kernels read in few bits, too, and whether every half can: act-order groups go through all inputs.
KINDS = {
    "gguf_F32": None,
    "gguf_Q8_0": True,
    "gguf_Q4_1": True,
    "gptq": True,
    "gptq_act_order": False,
    "awq": True,
    "fp8_blocks": True,
    "fp8_rows": True,
    "Phi3ForCausalLM": None,
    "GptOssForCausalLM": None,
    "MixtralForCausalLM": None,
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_share_is_the_part_that_the_table_names(kind: str, size: int, tmp_path: Path) -> None:
    with opened(written(kind, tmp_path)) as (shape, source):
        assert share_problem(shape, size) is None
        whole = {name: torch.full(shape, torch.nan) for name, shape in source.shapes.items()}
        for name, out in whole.items():
            source.read_into(name, out)
        cut_in_few_bits = []
        for rank in range(size):
            shares = Shares(shape, Rank(rank, size))
            for name, numbers in whole.items():
                share = shares.of(name)
                if share.zero:
                    continue
                part = share.cut(numbers, rows=(0, 1), columns=(1, 1))
                assert torch.equal(read(source, name, share), part), name
                if name.endswith("_proj.weight") and KINDS[kind] is not None:
                    matrix = source.quantized(name, CPU, share)
                    cut_in_few_bits.append(matrix is not None)
                    if matrix is not None:
                        torch.testing.assert_close(matrix.dense(), part, atol=1e-6, rtol=1e-5)
        if KINDS[kind]:
            # A quarter of these widths ends within blocks or groups: such parts become floats.
            assert all(cut_in_few_bits) or size == 4
            assert any(cut_in_few_bits)


@pytest.mark.parametrize("kind", ["gguf_Q8_0", "LlamaForCausalLM"])
def test_a_rank_never_holds_what_is_not_its_own(kind: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    }
    oracle = tiny_oracle(num_hidden_layers=6, **sizes)
    weights = sum(weight.numel() for weight in oracle.model.state_dict().values())
    if kind == "gguf_Q8_0":
        path = write_gguf(oracle, tmp_path / "m.gguf", matrix_type=GGMLQuantizationType.Q8_0)
    else:
        path = write_safetensors(oracle, tmp_path)
    with opened(path) as (shape, source):

        def load() -> object:
            shares = Shares(shape, Rank(1, 4))
            return Decoder(shares.shape, Weights(source, device=CPU, dtype=torch.float32, shares=shares), REFERENCE)

        with torch.inference_mode():
            # A quarter, and pieces of what is unpacked.
            assert peak_bytes(load) < weights + (20 << 20) < weights * 4


@pytest.mark.parametrize("size", [2, 4])
def test_what_all_ranks_have_is_the_whole(size: int) -> None:
    shares = [Shares(SHAPE, Rank(rank, size)) for rank in range(size)]
    for module, rows in (("q_proj", 16), ("gate_proj", 12), ("embed_tokens", 10), ("lm_head", 10)):
        found = [row for each in shares for part in each.of(f"model.{module}.weight").rows or () for row in part]
        assert found == list(range(rows)), module
    columns = [column for each in shares for column in each.of("model.layers.0.self_attn.o_proj.weight").columns or ()]
    assert columns == list(range(16))
    kv_heads = [each.of("model.layers.0.self_attn.k_proj.weight").rows for each in shares]
    expected = {2: [(range(4),), (range(4, 8),)], 4: [(range(4),), (range(4),), (range(4, 8),), (range(4, 8),)]}
    assert kv_heads == expected[size]


def test_the_bias_of_a_sum_is_added_once() -> None:
    shares = [Shares(SHAPE, Rank(rank, 2)).of("model.layers.0.mlp.down_proj.bias") for rank in range(2)]
    assert [share.zero for share in shares] == [False, True]
    assert shares[0].is_whole


@pytest.mark.parametrize(
    ("shape", "size", "problem"),
    [
        (SHAPE, 3, "4 query heads do not divide by 3"),
        (ModelConfig("llama", 10, 24, 12, 1, 6, 3, 4, 64), 2, "3 kv heads and 2 do not divide one another"),
        (ModelConfig("llama", 3, 16, 12, 1, 4, 4, 4, 64), 4, "vocab_size 3 is less than 4"),
        (
            ModelConfig("deepseek_v2", 10, 16, 12, 1, 4, 1, 4, 64, latent=LatentConfig(2, 0, 2, 2, 2)),
            2,
            "latent attention has one kv head for all query heads",
        ),
        (
            ModelConfig("olmo2", 10, 16, 12, 1, 4, 2, 4, 64, qk_norm="row"),
            2,
            "norms of all heads of a row as one vector need them in one process",
        ),
        (
            ModelConfig("gemma4", 10, 16, 12, 2, 4, 2, 4, 64, borrowing_layers=1),
            2,
            "layers that differ in their heads, or read each other's keys and values, need one process",
        ),
        (
            ModelConfig("mixtral", 10, 16, 12, 1, 4, 2, 4, 64, experts=ExpertsConfig(4, 2, 9)),
            2,
            "the experts' intermediate_size 9 does not divide by 2",
        ),
    ],
)
def test_what_does_not_divide_is_told(shape: ModelConfig, size: int, problem: str) -> None:
    assert share_problem(shape, size) == problem


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", ["gguf_Q8_0", "gptq_act_order", "MixtralForCausalLM"])
def test_ranks_compute_the_logits_of_the_whole(kind: str, size: int, tmp_path: Path) -> None:
    path = written(kind, tmp_path)

    def logits(ranks: Ranks) -> Tensor:
        config = EngineConfig(dtype="float32", tensor_parallel=ranks.size)
        return logits_of(load_model(path, config, ranks=ranks), PROMPTS[0])

    expected = logits_of(load_model(path, EngineConfig(dtype="float32")), PROMPTS[0])
    torch.testing.assert_close(on_ranks(size, logits)[0], expected, atol=2e-5, rtol=2e-5)
