"""Weights in few bits on the fused decoder: from every packing, the answers of the numbers that they stand for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as FileType

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ModelLoadError
from local_engine.kernels.gpu.decoder import DenseMlp, FusedDecoder, FusedLayer
from local_engine.kernels.gpu.matrices import QuantizedLinear
from local_engine.layers.linear import DenseLinear
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request, tokens_of
from tests.local_engine.kernels.gpu.on_cpu import fused_config, load_on_cpu
from tests.local_engine.loading.packed.packed_files import Parts, packed_model
from tests.local_engine.loading.packed.test_fp8 import E4M3, eight_bit, numbers
from tests.local_engine.loading.packed.test_grouped import AWQ_CONFIG, GPTQ_CONFIG, awq, gptq
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
FP8_CONFIG: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]}


def model_of(loaded: LoadedModel) -> FusedDecoder:
    model = loaded.open_executor.args[0]  # type: ignore[attr-defined]
    assert isinstance(model, FusedDecoder)
    return model


def dense_mlp(layer: FusedLayer) -> DenseMlp:
    assert isinstance(layer.mlp, DenseMlp)
    return layer.mlp


def inner(linear: Any) -> object:
    """The layer below the adapters."""
    return linear._linear


@pytest.mark.parametrize("kind", [FileType.Q4_0, FileType.Q4_1, FileType.Q5_0, FileType.Q8_0])
@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_is_computed_in_its_own_bits(kind: FileType, tied: bool, tmp_path: Path) -> None:
    oracle = tiny_oracle(4, hidden_size=64, intermediate_size=96, tie_word_embeddings=tied)
    path = write_gguf(oracle, tmp_path / "model.gguf", matrix_type=kind)
    loaded = load_on_cpu(path)
    reference = load_model(path, EngineConfig(dtype="float32"))
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), logits_of(reference, PROMPTS[0]), atol=5e-4, rtol=1e-4)
    layer = model_of(loaded).layers[0]
    for linear in (layer.qkv, layer.output, dense_mlp(layer).gate_up, dense_mlp(layer).down):
        assert isinstance(inner(linear), QuantizedLinear)
    vocabulary = model_of(loaded).vocabulary
    assert isinstance(vocabulary.embedding, QuantizedMatrix)
    assert isinstance(vocabulary.head, QuantizedMatrix)
    assert (vocabulary.head is vocabulary.embedding) == tied


def test_an_embedding_in_few_bits_is_scaled_as_gemma_has_it_and_its_logits_are_capped(tmp_path: Path) -> None:
    oracle = oracle_of("Gemma2ForCausalLM")
    path = write_gguf(oracle, tmp_path / "model.gguf", matrix_type=FileType.Q8_0)
    loaded = load_on_cpu(path)
    vocabulary = model_of(loaded).vocabulary
    assert isinstance(vocabulary.embedding, QuantizedMatrix)
    assert vocabulary.head is vocabulary.embedding
    reference = load_model(path, EngineConfig(dtype="float32"))
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), logits_of(reference, PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize("packing", ["gptq", "awq", "fp8"])
def test_packed_safetensors_are_computed_in_their_own_bits(packing: str, tmp_path: Path) -> None:
    def pack(weight: torch.Tensor) -> Parts:
        if packing == "gptq":
            return gptq(weight, bits=4, group_size=32, act_order=True)
        if packing == "awq":
            return awq(weight, group_size=32)
        packed, grid = eight_bit(weight, (32, 32), E4M3)
        return {"weight": packed, "weight_scale_inv": grid}, numbers(packed, grid, (32, 32))

    configs: dict[str, dict[str, Any]] = {"gptq": GPTQ_CONFIG, "awq": AWQ_CONFIG, "fp8": FP8_CONFIG}
    oracle = packed_model(tmp_path, pack, configs[packing])
    loaded = load_on_cpu(tmp_path)
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)
    assert isinstance(inner(dense_mlp(model_of(loaded).layers[0]).down), QuantizedLinear)
    assert isinstance(model_of(loaded).vocabulary.head, torch.Tensor)


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4)])
def test_floats_are_rounded_where_that_is_asked_for(weights: Any, bits: int, tmp_path: Path) -> None:
    oracle = tiny_oracle(4, hidden_size=64, intermediate_size=96)
    config = EngineConfig(weights=weights, block_size=4, kv_bytes=1 << 20)
    model = model_of(load_on_cpu(write_safetensors(oracle, tmp_path / "model"), config))
    weight = oracle.model.model.layers[0].mlp.down_proj.weight
    down = inner(dense_mlp(model.layers[0]).down)
    assert isinstance(down, QuantizedLinear)
    for matrix, exact, kept in (
        (down.matrices[0], weight, bits),
        (model.vocabulary.head, oracle.model.lm_head.weight, 8),
    ):
        assert isinstance(matrix, QuantizedMatrix)
        error = (matrix.dense() - exact).abs().max()
        assert 0 < error <= 0.51 * exact.abs().max() / ((1 << kept - 1) - 1)


def test_a_float_type_that_is_asked_for_unpacks_what_is_packed(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(4, hidden_size=64), tmp_path / "model.gguf", matrix_type=FileType.Q8_0)
    loaded = load_on_cpu(path, EngineConfig(weights="float32", block_size=4, kv_bytes=1 << 20))
    assert isinstance(inner(model_of(loaded).layers[0].qkv), DenseLinear)


def test_tokens_are_those_of_the_reference_in_any_batch(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(4, hidden_size=64), tmp_path / "model.gguf", matrix_type=FileType.Q4_0)
    requests = [request(prompt, GREEDY) for prompt in PROMPTS]
    found = generate(Engine(load_on_cpu(path), fused_config(max_batch_tokens=7)), requests)
    expected = generate(Engine(load_model(path, EngineConfig(dtype="float32")), fused_config()), requests)
    assert [tokens_of(outcome) for outcome in found] == [tokens_of(outcome) for outcome in expected]


def test_experts_are_not_rounded(tmp_path: Path) -> None:
    folder = write_safetensors(oracle_of("MixtralForCausalLM"), tmp_path / "model")
    with pytest.raises(ModelLoadError, match="weights: int4 does not go with experts"):
        load_on_cpu(folder, EngineConfig(weights="int4"))


def test_determinism_and_rounding_exclude_each_other(tmp_path: Path) -> None:
    folder = write_safetensors(tiny_oracle(4), tmp_path / "model")
    config = EngineConfig(weights="int8", deterministic=True)
    with pytest.raises(ModelLoadError, match="deterministic: does not go with weights: int8"):
        load_on_cpu(folder, config)
