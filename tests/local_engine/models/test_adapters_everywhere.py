"""Every row of the registry that reads text alone takes LoRA adapters on its dense layers, and answers as peft does."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ModelLoadError
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request, small_config, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES, oracle_of
from tests.local_engine.tiny_adapters import ALL_LINEAR, adapted, write_adapter
from tests.local_engine.tiny_models import write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
ATTENTION = ALL_LINEAR[:4]
# Of models that have a tower in the file, whose layers have the same names.
BESIDE_TOWER = r".*language_model\..*\.(q_proj|k_proj|v_proj|o_proj)"
TARGETS: Mapping[str, list[str] | str] = {
    "Mistral3ForConditionalGeneration": BESIDE_TOWER,
    "Gemma4ForConditionalGeneration": BESIDE_TOWER,
    "Llama4ForConditionalGeneration": BESIDE_TOWER,
    "NemotronHForCausalLM": ATTENTION,
    "NemotronForCausalLM": [*ATTENTION, "up_proj", "down_proj"],
    "ApertusForCausalLM": [*ATTENTION, "up_proj", "down_proj"],
    "Phi3ForCausalLM": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "Lfm2ForCausalLM": [*ATTENTION[:3], "out_proj", "in_proj", "w1", "w2"],
    "Lfm2MoeForCausalLM": [*ATTENTION[:3], "out_proj", "in_proj"],
    "Glm4ForCausalLM": [*ATTENTION, "gate_up_proj", "down_proj"],
    "MixtralForCausalLM": ATTENTION,
    "Qwen3MoeForCausalLM": ATTENTION,
    "Starcoder2ForCausalLM": ATTENTION,
    "ArceeForCausalLM": [*ATTENTION, "up_proj", "down_proj"],
    "GraniteMoeForCausalLM": ATTENTION,
    "GraniteMoeHybridForCausalLM": ATTENTION,
    "DeepseekV2ForCausalLM": ["q_proj", "kv_a_proj_with_mqa", "o_proj"],
    "Glm4MoeLiteForCausalLM": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"],
    "DeepseekV3ForCausalLM": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"],
    "Qwen2MoeForCausalLM": ALL_LINEAR,
    "Qwen3NextForCausalLM": [*ATTENTION, "in_proj_qkvz", "in_proj_ba", "out_proj"],
    "Qwen3_5ForCausalLM": [*ALL_LINEAR, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
    "Qwen3_5MoeForCausalLM": [*ATTENTION, "in_proj_qkv", "in_proj_z", "out_proj"],
    "Glm4MoeForCausalLM": ATTENTION,
    "GptOssForCausalLM": ATTENTION,
    "OlmoeForCausalLM": ATTENTION,
    "Llama4ForCausalLM": ATTENTION,
    "MiniMaxM2ForCausalLM": ATTENTION,
    "Dots1ForCausalLM": ATTENTION,
    "Ernie4_5_MoeForCausalLM": ATTENTION,
    "HunYuanMoEV1ForCausalLM": ATTENTION,
    "ExaoneMoeForCausalLM": ATTENTION,
    "ExaoneMoEForCausalLM": ATTENTION,
}


@pytest.mark.parametrize("name", TEXT_ARCHITECTURES)
def test_an_adapted_model_beside_its_base_answers_as_peft_does(name: str, tmp_path: Path) -> None:
    oracle = oracle_of(name)
    folder = write_adapter(oracle, tmp_path / "a", target_modules=TARGETS.get(name, ALL_LINEAR), lora_alpha=4)
    engine = Engine(
        load_model(write_safetensors(oracle, tmp_path / "m"), EngineConfig(dtype="float32")),
        small_config(max_batch_tokens=7),
    )
    engine.load_adapter("a", folder)
    asked = [(prompt, adapter) for prompt in PROMPTS for adapter in (None, "a")]
    outcomes = generate(engine, [replace(request(prompt, GREEDY), adapter=adapter) for prompt, adapter in asked])
    answers = [tokens_of(outcome) for outcome in outcomes]
    oracles = {None: oracle, "a": adapted(oracle, folder)}
    expected = [
        oracles[adapter].greedy(prompt, 10, guess=answer)
        for (prompt, adapter), answer in zip(asked, answers, strict=True)
    ]
    assert answers == expected
    assert expected[::2] != expected[1::2]


def test_adapters_on_experts_are_refused(tmp_path: Path) -> None:
    oracle = oracle_of("MixtralForCausalLM")
    folder = write_adapter(
        oracle, tmp_path / "a", target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj"]
    )
    loaded = load_model(write_safetensors(oracle, tmp_path / "m"), EngineConfig())
    with pytest.raises(ModelLoadError, match="target_parameters is not supported"):
        loaded.read_adapter(folder)
