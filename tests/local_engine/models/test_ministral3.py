"""Mistral's published files, whose text model lies beside a tower: older names of tensors, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors


def with_tower_around(folder: Path, text_type: str) -> None:
    """Makes of a text model's folder what Mistral publishes, by the names of older transformers."""
    file, weights = folder / "config.json", folder / "model.safetensors"
    text = json.loads(file.read_text()) | {"model_type": text_type}
    file.write_text(json.dumps({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}))
    tensors = {f"language_model.{name}": tensor for name, tensor in load_file(weights).items()}
    tensors |= {f"{name}.weight": torch.zeros(2) for name in ("vision_tower.patch_conv", "multi_modal_projector.norm")}
    save_file(tensors, weights, metadata={"format": "pt"})


def test_mistral_small_is_read_from_beside_its_tower(tmp_path: Path) -> None:
    oracle = oracle_of("MistralForCausalLM", sliding_window=None)
    with_tower_around(write_safetensors(oracle, tmp_path), "mistral")
    ours = logits_of(load_model(tmp_path, EngineConfig(dtype="float32")), PROMPTS[0])
    torch.testing.assert_close(ours, oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(("rate", "window"), [(0.1, 64), (0.0, 128)])
def test_where_queries_grow_the_trained_window_is_served_by_default(rate: float, window: int, tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}
    oracle = oracle_of("Ministral3ForCausalLM", rope_parameters=rope | {"llama_4_scaling_beta": rate})
    path = write_safetensors(oracle, tmp_path)
    assert load_model(path, EngineConfig()).info.config.max_context == window


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_a_larger_window_is_computed_as_transformers_does(kind: str, tmp_path: Path) -> None:
    oracle = oracle_of("Ministral3ForCausalLM")
    path = write_safetensors(oracle, tmp_path) if kind == "safetensors" else write_gguf(oracle, tmp_path / "m.gguf")
    prompt = [*range(3, 103), *PROMPTS[0]]
    loaded = load_model(path, EngineConfig(dtype="float32", max_context=128))
    assert loaded.info.config.max_context == 128
    torch.testing.assert_close(logits_of(loaded, prompt), oracle.logits(prompt), atol=5e-4, rtol=1e-4)


def test_another_text_model_is_refused_by_name(tmp_path: Path) -> None:
    with_tower_around(write_safetensors(oracle_of("MistralForCausalLM"), tmp_path), "gpt2")
    assert refusal(tmp_path) == "text_config.model_type is 'gpt2', supported are mistral and ministral3"
