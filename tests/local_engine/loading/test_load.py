"""From files to a model: facts beside the weights, progress, and one clear error for what does not fit."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_engine.config import EngineConfig
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingDefaults
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors


@pytest.fixture
def folder(oracle: Oracle, tmp_path: Path) -> Path:
    return write_safetensors(oracle, tmp_path / "model")


def change(file: Path, **values: Any) -> None:
    """Sets keys of a JSON file; None removes one."""
    content = json.loads(file.read_text()) if file.exists() else {}
    content |= values
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def failure(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, EngineConfig())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_yields_all_its_stop_tokens_and_its_sampling_defaults(folder: Path) -> None:
    change(
        folder / "generation_config.json",
        eos_token_id=[5, 7, 5, -1, 9999],
        temperature=0.2,
        top_p=0.9,
        top_k=20,
        min_p=None,
    )
    info = load_model(folder, EngineConfig()).info
    assert info.stop_token_ids == (5, 7)
    assert info.defaults == SamplingDefaults(temperature=0.2, top_p=0.9, top_k=20)
    assert info.config.vocab_size == 128
    assert info.config.max_context == 64


def test_stop_tokens_come_from_config_json_where_no_generation_config_is(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert load_model(folder, EngineConfig()).info.stop_token_ids == (7,)


def test_a_gguf_yields_its_end_of_sequence_and_end_of_turn_tokens(tiny_gguf: Path) -> None:
    info = load_model(tiny_gguf, EngineConfig()).info
    assert info.stop_token_ids == (7, 9)
    assert info.defaults == SamplingDefaults()


def test_a_gguf_may_recommend_how_to_sample(oracle: Oracle, tmp_path: Path) -> None:
    numbers = {"temp": 0.25, "top_p": 0.5, "top_k": 20, "min_p": 0.125, "penalty_repeat": 1.5}
    path = write_gguf(
        oracle, tmp_path / "m.gguf", numbers={f"general.sampling.{name}": value for name, value in numbers.items()}
    )
    assert load_model(path, EngineConfig()).info.defaults == SamplingDefaults(
        temperature=0.25, top_p=0.5, top_k=20, min_p=0.125, repetition_penalty=1.5
    )


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_progress_rises_to_the_whole(kind: str, tiny_folder: Path, tiny_gguf: Path) -> None:
    calls: list[tuple[int, int]] = []
    load_model(
        tiny_folder if kind == "folder" else tiny_gguf,
        EngineConfig(),
        progress=lambda done, total: calls.append((done, total)),
    )
    done = [call[0] for call in calls]
    assert len(calls) > 5
    assert done == sorted(done)
    assert {call[1] for call in calls} == {done[-1]}


def test_shards_load_as_one_model(oracle: Oracle, tmp_path: Path) -> None:
    folder = write_safetensors(oracle, tmp_path / "shards", shard_bytes=20_000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert load_model(folder, EngineConfig()).info.config.num_layers == 2


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "", ".", 5, None])
def test_an_index_that_points_out_of_its_folder_is_refused(name: Any, oracle: Oracle, tmp_path: Path) -> None:
    folder = write_safetensors(oracle, tmp_path / "shards", shard_bytes=20_000)
    index = folder / "model.safetensors.index.json"
    listing = json.loads(index.read_text())
    listing["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(listing))
    assert "the name of a file beside the index" in failure(folder)


def test_a_missing_shard_is_named(oracle: Oracle, tmp_path: Path) -> None:
    folder = write_safetensors(oracle, tmp_path / "shards", shard_bytes=20_000)
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    assert failure(folder).startswith(shard.name)


@pytest.mark.parametrize("size", [0, 4, 100, 5000])
def test_a_cut_safetensors_file_is_named(folder: Path, size: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    assert failure(folder).startswith("model.safetensors: not a whole safetensors file")


def test_a_safetensors_file_whose_header_claims_too_much_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    assert "not a whole safetensors file" in failure(folder)


def test_a_folder_without_weights_says_what_it_looked_for(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "holds neither model.safetensors nor model.safetensors.index.json" in failure(folder)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture 'GPT2LMHeadModel' is not supported; supported are llama",
        ),
        ({"architectures": None}, "architecture 'none' is not supported"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_size": "32"}, "hidden_size is str, expected an integer"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"num_attention_heads": 3}, "do not divide"),
        ({"num_hidden_layers": 2**31}, "num_layers is 2147483648"),
        ({"num_hidden_layers": 3}, "tensor 'model.layers.2.input_layernorm.weight' is missing"),
        ({"num_hidden_layers": 1}, "has no place in this architecture"),
        ({"intermediate_size": 48}, "'model.layers.0.mlp.gate_proj.weight' has shape [64, 32], expected [48, 32]"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is too large a number"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu', expected 'silu'"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "rope scaling 'longrope'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_parameters": 5}, "rope_parameters is int, expected an object"),
        ({"head_dim": 7}, "head_dim is 7"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_name(folder: Path, values: dict[str, Any], reason: str) -> None:
    change(folder / "config.json", **values)
    assert reason in failure(folder)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xff"])
def test_a_config_that_is_no_json_object_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert failure(folder).startswith("config.json: ")


def test_a_gguf_of_another_architecture_names_file_architecture_and_what_is_supported(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(tiny_gguf.read_bytes().replace(b"llama", b"mamba", 2))
    message = failure(path)
    assert message.startswith(
        "other.gguf: architecture 'mamba' is not supported; supported are llama (LlamaForCausalLM), "
    )
    assert "qwen3 (Qwen3ForCausalLM)" in message


def test_a_gguf_that_lacks_a_tensor_or_has_one_too_many_is_refused_by_name(oracle: Oracle, tmp_path: Path) -> None:
    lacking = write_gguf(oracle, tmp_path / "a.gguf", leave_out="blk.1.ffn_up.weight")
    assert "tensor 'model.layers.1.mlp.up_proj.weight' is missing" in failure(lacking)
    extra = {"blk.0.attn_q_norm.weight": np.ones(8, dtype=np.float32)}
    too_many = write_gguf(oracle, tmp_path / "b.gguf", extra=extra)
    assert "tensor 'blk.0.attn_q_norm.weight' has no place in this architecture" in failure(too_many)
    misshapen = write_gguf(oracle, tmp_path / "c.gguf", extra={"output_norm.weight": np.ones(8, dtype=np.float32)})
    assert "tensor 'model.norm.weight' has shape [8], expected [32]" in failure(misshapen)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_refused_by_name(device: str, tiny_gguf: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_model(tiny_gguf, EngineConfig(device=device))
    assert caught.value.param == "device"


def test_a_tied_model_may_carry_its_head_twice(tmp_path: Path) -> None:
    folder = write_safetensors(tiny_oracle(seed=2), tmp_path / "model")
    change(folder / "config.json", tie_word_embeddings=True)
    load_model(folder, EngineConfig())
