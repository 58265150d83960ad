"""Layers of experts on the fused kernels: against transformers, against torch, and against themselves in company."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf import GGMLQuantizationType as FileType
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest
from local_engine.kernels.cpu.decoder import routing_of
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.layer_config import ExpertsConfig, RoutingConfig
from local_engine.layers.experts import choose_experts
from local_engine.loading.load import load_model
from tests.local_engine.engine_driver import generate, request, tokens_of
from tests.local_engine.kernels.cpu import twin
from tests.local_engine.kernels.cpu.libraries import runnable_libraries
from tests.local_engine.kernels.cpu.test_executor import (
    DELTA,
    EXACT,
    GREEDY,
    PROMPT,
    SHAPE,
    hidden_of,
    logits_of,
    sequence_of,
)
from tests.local_engine.models.test_adapters_everywhere import TARGETS
from tests.local_engine.models.test_gpt_oss import write_mxfp4
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_adapters import adapted, write_adapter
from tests.local_engine.tiny_models import write_gguf, write_safetensors

_HEADS = {"head_dim": 32}
_NARROW = {"moe_intermediate_size": 32}
_LATENT = {
    **_NARROW,
    "num_key_value_heads": 2,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 96,
}
SPARSE: Mapping[str, Mapping[str, Any]] = {
    "MixtralForCausalLM": {},
    "Qwen3MoeForCausalLM": {**_HEADS, **_NARROW, "num_experts_per_tok": 3},
    "Qwen2MoeForCausalLM": {**_NARROW, "shared_expert_intermediate_size": 64},
    "GraniteMoeForCausalLM": {},
    "GraniteMoeHybridForCausalLM": {"num_local_experts": 4, "shared_intermediate_size": 64},
    "Glm4MoeForCausalLM": _HEADS | _NARROW | {"head_dim": 64},
    "OlmoeForCausalLM": {},
    "Dots1ForCausalLM": _HEADS | _NARROW | {"n_group": 3, "topk_group": 2},
    "MiniMaxM2ForCausalLM": _HEADS | {"rotary_dim": 32},
    "Ernie4_5_MoeForCausalLM": _HEADS | _NARROW,
    "HunYuanMoEV1ForCausalLM": _HEADS,
    "ExaoneMoeForCausalLM": _HEADS | _NARROW,
    "Lfm2MoeForCausalLM": _NARROW,
    "GptOssForCausalLM": {**_HEADS, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    "Qwen3NextForCausalLM": {**DELTA, **_NARROW, "head_dim": 64, "shared_expert_intermediate_size": 64},
    "Qwen3_5MoeForCausalLM": {**DELTA, **_NARROW, "head_dim": 64, "shared_expert_intermediate_size": 64},
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV3ForCausalLM": {**_LATENT, "q_lora_rank": 96},
    "Glm4MoeLiteForCausalLM": {**_LATENT, "q_lora_rank": 96},
}
# Rows of whole blocks of any type. A GGUF of DeepSeek V2 has what makes keys and values as one tensor, of V3 as two.
_WIDE: Mapping[str, Mapping[str, Any]] = {
    "Glm4MoeForCausalLM": {"head_dim": 128, "num_experts_per_tok": 3},
    "DeepseekV3ForCausalLM": {"q_lora_rank": 256},
    "DeepseekV2ForCausalLM": {},
}
_WIDE_LATENT = {"kv_lora_rank": 256, "qk_nope_head_dim": 256, "v_head_dim": 128, "n_group": 1, "topk_group": 1}
TYPES = [
    pytest.param(name, kind, id=f"{name}-{kind.name}")
    for name in _WIDE
    for kind in (*twin.QUANTISED_TYPES, *twin.DENSE_TYPES)
    if name != "DeepseekV2ForCausalLM" or kind in (FileType.Q4_K, FileType.F16)
]
DEFAULTS = EngineConfig(kv_bytes=1 << 24, threads=2)


# A GGUF of the hybrid has Mamba's layers, or no experts.
FILES = [(name, "safetensors") for name in SPARSE] + [(name, "gguf") for name in SPARSE if "Hybrid" not in name]


@pytest.mark.parametrize(("name", "kind"), FILES)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, kind: str, tmp_path: Path) -> None:
    oracle = oracle_of(name, **(SHAPE | dict(SPARSE[name])))
    path = write_safetensors(oracle, tmp_path) if kind == "safetensors" else write_gguf(oracle, tmp_path / "m.gguf")
    loaded = load_model(path, EXACT)
    assert isinstance(loaded.open_executor(EXACT), CpuExecutor)
    torch.testing.assert_close(logits_of(loaded, EXACT), oracle.logits(PROMPT), atol=5e-4, rtol=1e-4)
    (outcome,) = generate(Engine(loaded, EXACT), [request(PROMPT, GREEDY)])
    answer = tokens_of(outcome)
    assert answer == oracle.greedy(PROMPT, 12, guess=answer)


# Of blocks of the types that gguf cannot write: where scales stand, and which make weights as large as others are.
_SCALES: Mapping[FileType, Mapping[int, float]] = {
    FileType.Q4_K: {0: 0.002, 2: 0.015},
    FileType.Q5_K: {0: 0.001, 2: 0.015},
    FileType.Q6_K: {208: 0.0002},
}


def rows_of(values: npt.NDArray[np.float32], kind: FileType) -> npt.NDArray[np.uint8]:
    """Rows of a file: the values rounded, or any bits."""
    if kind not in _SCALES:
        rounded: npt.NDArray[np.uint8] = gguf.quants.quantize(values, kind)
        return rounded
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(values.size)
    blocks = rng.integers(0, 256, (values.size // block, block_bytes), dtype=np.uint8)
    for start, scale in _SCALES[kind].items():
        blocks[:, start : start + 2] = np.full((len(blocks), 1), scale, dtype=np.float16).view(np.uint8)
    return blocks.reshape(*values.shape[:-1], -1)


@pytest.mark.parametrize(("name", "kind"), TYPES)
def test_weights_of_every_type_give_torchs_distribution(name: str, kind: FileType, tmp_path: Path) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256}
    latent = {} if name == "Glm4MoeForCausalLM" else _LATENT | _WIDE_LATENT
    model = oracle_of(name, **(SHAPE | latent | wide | dict(_WIDE[name])))
    path = write_gguf(model, tmp_path / "m.gguf", matrix_type=kind, quantise=rows_of)
    reference = EngineConfig(dtype="float32", kv_bytes=1 << 24)
    expected = logits_of(load_model(path, reference), reference).log_softmax(-1)
    got = logits_of(load_model(path, EXACT), EXACT).log_softmax(-1)
    # Of a random model, which magnifies what is rounded; a wrong weight gives more than 1.
    assert float((expected.exp() * (expected - got)).sum(-1).median()) < (1e-5 if kind in twin.DENSE_TYPES else 0.1)


def test_experts_in_mxfp4_stay_so_from_safetensors(tmp_path: Path) -> None:
    model = write_mxfp4(tmp_path, **(SHAPE | dict(SPARSE["GptOssForCausalLM"])))
    loaded = load_model(tmp_path, EXACT)
    assert isinstance(loaded.open_executor(EXACT), CpuExecutor)
    got, expected = logits_of(loaded, EXACT).log_softmax(-1), model.logits(PROMPT).log_softmax(-1)
    # Activations alone are rounded; a wrong weight gives more than 1.
    assert 1e-7 < float((expected.exp() * (expected - got)).sum(-1).median()) < 0.02


_COMPARED = (
    "Qwen2MoeForCausalLM",
    "Glm4MoeForCausalLM",
    "GptOssForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
)


@pytest.fixture(scope="module", params=[*_COMPARED])
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    heads = {} if "Deepseek" in request.param else {"head_dim": 64}
    model = oracle_of(request.param, **(SHAPE | heads | dict(SPARSE[request.param])))
    return write_gguf(model, tmp_path_factory.mktemp("q") / "q8.gguf", matrix_type=FileType.Q8_0)


def test_a_row_is_the_same_bits_however_its_prompt_is_cut_and_whoever_is_beside_it(quantised: Path) -> None:
    executor = load_model(quantised, DEFAULTS).open_executor(DEFAULTS)
    tokens = [(7 * index + 3) % 128 for index in range(45)]
    whole = hidden_of(executor, [Chunk(sequence_of(tokens), 0, 45)])
    alone = sequence_of(tokens, first_block=30)
    rows = [hidden_of(executor, [Chunk(alone, index, index + 1)]) for index in range(45)]
    assert torch.equal(torch.cat(rows), whole)
    cut, others = sequence_of(tokens, first_block=60), sequence_of(tokens[::-1] * 8, first_block=90)
    pieces = []
    for turn, (start, stop) in enumerate(((0, 7), (7, 8), (8, 31), (31, 45))):
        # With so many rows beside it an expert has more than one block of them.
        hidden = hidden_of(
            executor, [Chunk(others, 50 * turn, 50 * turn + (1, 200, 3, 60)[turn]), Chunk(cut, start, stop)]
        )
        pieces.append(hidden[-(stop - start) :])
    assert torch.equal(torch.cat(pieces), whole)


def test_every_instruction_set_and_thread_count_gives_the_same_bits(quantised: Path) -> None:
    found = []
    tokens = PROMPT * 30  # so many that few threads share out spans of them
    for library in runnable_libraries():
        for threads in (1, 3):
            config = EngineConfig(cpu_instruction_set=library.instruction_set, threads=threads, kv_bytes=1 << 24)  # type: ignore[arg-type]
            executor = load_model(quantised, config).open_executor(config)
            sequence = sequence_of(tokens)
            hidden_of(executor, [Chunk(sequence, 0, len(tokens) - 1)])
            found.append(hidden_of(executor, [Chunk(sequence, len(tokens) - 1, len(tokens))]))
    for states in found[1:]:
        assert torch.equal(states, found[0])


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2MoeForCausalLM",
        "Glm4MoeForCausalLM",
        "MixtralForCausalLM",
        "Qwen3NextForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
    ],
)
def test_adapters_change_attention_and_the_block_beside_experts_as_in_peft(name: str, tmp_path: Path) -> None:
    model = oracle_of(name, **(SHAPE | dict(SPARSE[name])))
    folder = write_adapter(model, tmp_path / "adapter", target_modules=TARGETS[name])
    engine = Engine(load_model(write_safetensors(model, tmp_path / "m"), EXACT), EXACT)
    engine.load_adapter("a", folder)
    plain, changed = (
        GenerationRequest(name, tuple(PROMPT), GREEDY, adapter=adapter) for name, adapter in (("p", None), ("c", "a"))
    )
    outcomes = generate(engine, [plain, changed])
    base, own = map(tokens_of, outcomes)
    assert base == model.greedy(PROMPT, 12, guess=base)
    assert own == adapted(model, folder).greedy(PROMPT, 12, guess=own)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_floats_can_be_rounded_when_they_are_loaded_but_a_routers(weights: Any, tmp_path: Path) -> None:
    model = oracle_of("GraniteMoeForCausalLM", **SHAPE)
    config = EngineConfig(weights=weights, kv_dtype="float32", kv_bytes=1 << 22)
    got = logits_of(load_model(write_safetensors(model, tmp_path), config), config).log_softmax(-1)
    expected = model.logits(PROMPT).log_softmax(-1)
    allowed = 0.1 if weights == "int8" else 2.5
    assert 1e-6 < float((expected.exp() * (expected - got)).sum(-1).median()) < allowed


@settings(max_examples=150)
@given(data=st.data())
def test_experts_are_chosen_as_in_torch(data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from((1, 1, 2, 4)))
    count = groups * data.draw(st.integers(2, 40))
    used = data.draw(st.integers(1, groups))
    shape = ExpertsConfig(
        count=count,
        per_token=data.draw(st.integers(1, min(12, count // groups * used))),
        intermediate_size=32,
        normalised=data.draw(st.booleans()),
        routing=RoutingConfig(
            scores=data.draw(st.sampled_from(("softmax", "sigmoid"))),
            corrected=data.draw(st.booleans()),
            groups=groups,
            used_groups=used,
            scale=data.draw(st.sampled_from((1.0, 2.5))),
        ),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    logits = rng.normal(0, 2, (5, count)).astype(np.float32)
    correction = rng.normal(0, 0.3, count).astype(np.float32) if shape.routing.corrected else None
    experts, weights = choose_experts(
        torch.from_numpy(logits),
        shape.per_token,
        normalised=shape.normalised,
        routing=shape.routing,
        correction=None if correction is None else torch.from_numpy(correction),
    )
    order = experts.argsort(-1)
    found = [library.choose_experts(routing_of(shape), logits, correction) for library in runnable_libraries()]
    for chosen in found:
        np.testing.assert_array_equal(chosen["expert"], experts.gather(1, order).numpy())
        np.testing.assert_allclose(chosen["share"], weights.gather(1, order).numpy(), rtol=2e-5, atol=1e-7)
        np.testing.assert_array_equal(chosen, found[0])


@pytest.mark.parametrize(
    "routing", [RoutingConfig(), RoutingConfig("sigmoid", corrected=True, groups=2, used_groups=1)]
)
def test_logits_that_are_no_numbers_choose_experts_all_the_same(routing: RoutingConfig) -> None:
    shape = ExpertsConfig(count=6, per_token=3, intermediate_size=32, routing=routing)
    logits = np.array([[np.nan] * 6, [-np.inf] * 6, [0, 1, 2, 3, 4, 5], [np.nan, np.inf, -np.inf, 0, 1, 1]], np.float32)
    correction = np.zeros(6, np.float32) if routing.corrected else None
    for library in runnable_libraries():
        chosen = library.choose_experts(routing_of(shape), logits, correction)
        for row in chosen["expert"]:
            assert len(set(row.tolist())) == 3
            assert 0 <= row.min() <= row.max() < 6
        assert chosen["expert"][2].tolist() == [3, 4, 5]
        assert np.isfinite(chosen["share"][2]).all()
