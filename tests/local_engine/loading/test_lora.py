"""Adapter folders as untrusted input: what peft means by them, and one line for what cannot be used."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from local_engine.config import EngineConfig
from local_engine.errors import ModelLoadError
from local_engine.layers.lora import LowRank
from local_engine.loading.load import LoadedModel, load_model
from tests.local_engine.tiny_adapters import write_adapter
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_safetensors

Edit = Callable[[Path], None]

_Q = "base_model.model.model.layers.0.self_attn.q_proj"


def deltas_of(loaded: LoadedModel, folder: Path) -> dict[str, Tensor]:
    """What each linear layer's matrix grows by."""
    found: Mapping[str, LowRank] = loaded.read_adapter(folder)
    return {name: delta.up @ delta.down for name, delta in found.items()}


def configure(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change(folder: Path, edit: Callable[[dict[str, Tensor]], None]) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.fixture(scope="module")
def original(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(oracle, tmp_path_factory.mktemp("lora") / "a")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "adapter"))


def refusal(loaded: LoadedModel, folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        loaded.read_adapter(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_stacked_layers_hold_each_part_where_its_rows_are(tiny_model: LoadedModel, folder: Path) -> None:
    deltas = deltas_of(tiny_model, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    assert len(deltas) == 2 * 4
    grown = deltas["model.layers.0.self_attn.q_proj"]
    row = 0
    for part, rows in (("q", 32), ("k", 16), ("v", 16)):
        name = _Q.replace("q_proj", f"{part}_proj")
        expected = 2.0 * tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"]
        torch.testing.assert_close(grown[row : row + rows], expected)
        row += rows
    assert row == len(grown)


@pytest.mark.parametrize(
    ("settings", "adapted"),
    [
        ({"target_modules": ["q_proj"]}, {"0.self_attn.q_proj", "1.self_attn.q_proj"}),
        ({"target_modules": ["1.self_attn.q_proj"]}, {"1.self_attn.q_proj"}),
        ({"target_modules": ["k_proj"], "layers_to_transform": [1]}, {"1.self_attn.q_proj"}),
        ({"target_modules": ["k_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}, {"0.self_attn.q_proj"}),
        ({"target_modules": r".*\.0\.mlp\.(up|down)_proj"}, {"0.mlp.gate_proj", "0.mlp.down_proj"}),
        ({"target_modules": "all-linear", "exclude_modules": r".*(self_attn|\.1\.|down).*"}, {"0.mlp.gate_proj"}),
        ({"target_modules": ["o_proj", "up_proj"], "exclude_modules": ["up_proj", "0.self_attn.o_proj"]},
         {"1.self_attn.o_proj"}),
    ],
)  # fmt: skip
def test_modules_are_named_as_peft_names_them(
    oracle: Oracle, tiny_model: LoadedModel, tmp_path: Path, settings: dict[str, Any], adapted: set[str]
) -> None:
    folder = write_adapter(oracle, tmp_path / "a", **settings)
    assert deltas_of(tiny_model, folder).keys() == {f"model.layers.{name}" for name in adapted}


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 8 / 4),
        ({"lora_alpha": 3}, 3 / 4),
        ({"use_rslora": True}, 8 / 2),
        ({"rank_pattern": {"q_proj": 16}}, 8 / 16),
        ({"rank_pattern": {"q_proj": 16}, "use_rslora": True}, 8 / 4),
        ({"alpha_pattern": {r"layers\.0\..*q_proj": 5}}, 5 / 4),
        ({"rank_pattern": {".*_proj": 2}, "alpha_pattern": {"q_proj": 1, "self_attn.q_proj": 5}}, 1 / 2),
    ],
)
def test_the_scale_is_that_of_peft(
    oracle: Oracle, tiny_model: LoadedModel, tmp_path: Path, settings: dict[str, Any], scale: float
) -> None:
    folder = write_adapter(oracle, tmp_path / "a", **({"target_modules": ["q_proj"]} | settings))
    tensors = load_file(folder / "adapter_model.safetensors")
    expected = scale * tensors[f"{_Q}.lora_B.weight"] @ tensors[f"{_Q}.lora_A.weight"]
    grown = deltas_of(tiny_model, folder)["model.layers.0.self_attn.q_proj"]
    torch.testing.assert_close(grown[:32], expected)
    assert not grown[32:].any()


def test_the_layout_of_the_base_matrix_changes_nothing(tiny_model: LoadedModel, folder: Path) -> None:
    expected = deltas_of(tiny_model, folder)
    configure(folder, fan_in_fan_out=True)
    for name, delta in deltas_of(tiny_model, folder).items():
        assert torch.equal(delta, expected[name])


def test_half_precision_files_and_half_precision_engines(tiny_folder: Path, folder: Path) -> None:
    expected = deltas_of(load_model(tiny_folder, EngineConfig(dtype="float32")), folder)
    change(folder, lambda tensors: tensors.update({name: value.bfloat16() for name, value in tensors.items()}))
    loaded = load_model(tiny_folder, EngineConfig(dtype="bfloat16"))
    for name, delta in deltas_of(loaded, folder).items():
        assert delta.dtype == torch.bfloat16
        torch.testing.assert_close(delta.float(), expected[name], atol=0.05, rtol=0.02)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"use_dora": True}, "use_dora"),
        ({"use_qalora": True}, "use_qalora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"target_parameters": ["experts.gate_up"]}, "target_parameters"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
        ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
        ({"a_key_of_next_year": {"x": 1}}, "a_key_of_next_year"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"r": 0}, "r is 0"),
        ({"r": "4"}, "r is str"),
        ({"lora_alpha": None}, "lora_alpha is missing"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern: 'q_proj'"),
        ({"alpha_pattern": {"q_proj": -1}}, "alpha_pattern: 'q_proj'"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern"),
        ({"target_modules": "(q_proj"}, "target_modules: '(q_proj'"),
        ({"target_modules": [4]}, "target_modules"),
        ({"layers_to_transform": [1.5]}, "layers_to_transform"),
        ({"layers_pattern": {"a": 1}}, "layers_pattern"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    tiny_model: LoadedModel, folder: Path, values: dict[str, Any], named: str
) -> None:
    configure(folder, **values)
    message = refusal(tiny_model, folder)
    assert message.startswith("adapter: adapter_config.json: ")
    assert named in message


def _grow(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({name: torch.zeros(tensors[name].shape[0] + 1, tensors[name].shape[1])})


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (_grow(f"{_Q}.lora_A.weight"), (f"'{_Q}.lora_A.weight' has shape [5, 32], expected [4, 32]")),
        (_grow(f"{_Q}.lora_B.weight"), (f"'{_Q}.lora_B.weight' has shape [33, 4], expected [32, 4]")),
        (lambda tensors: tensors.pop(f"{_Q}.lora_B.weight"), f"'{_Q}.lora_B.weight' is missing"),
        (lambda tensors: tensors.update({f"{_Q}.lora_A.weight": torch.zeros(4, 32, dtype=torch.int32)}), "of type I32"),
        (lambda tensors: tensors[f"{_Q}.lora_A.weight"].fill_(torch.nan), "not finite"),
        (lambda tensors: tensors.update({f"{_Q}.lora_magnitude_vector": torch.zeros(32)}), "lora_magnitude_vector"),
        (lambda tensors: tensors.update({_Q.replace("0", "7") + ".lora_A.weight": torch.zeros(4, 32)}), "layers.7."),
        (lambda tensors: tensors.update({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 32)}), "lm_head"),
    ],
)
def test_a_tensor_that_does_not_fit_the_base_model_is_named(
    tiny_model: LoadedModel, folder: Path, edit: Callable[[dict[str, Tensor]], None], named: str
) -> None:
    change(folder, edit)
    message = refusal(tiny_model, folder)
    assert message.startswith("adapter: adapter_model.safetensors: ")
    assert named in message


def test_a_layer_that_the_configuration_does_not_name_is_refused(tiny_model: LoadedModel, folder: Path) -> None:
    configure(folder, target_modules=["k_proj"])
    assert "that target_modules does not name" in refusal(tiny_model, folder)


def test_an_adapter_of_another_model_is_refused(oracle: Oracle, folder: Path, tmp_path: Path) -> None:
    wider = load_model(write_safetensors(tiny_oracle(intermediate_size=96), tmp_path / "m"), EngineConfig())
    assert "mlp.gate_proj.lora_B.weight' has shape [64, 4], expected [96, 4]" in refusal(wider, folder)


def test_embeddings_and_heads_are_refused(oracle: Oracle, tiny_model: LoadedModel, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="save_embedding_layers"):
        folder = write_adapter(oracle, tmp_path / "a", target_modules=["embed_tokens", "q_proj"])
    assert "embed_tokens" in refusal(tiny_model, folder)


def _pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def _cut(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "adapter_config.json").unlink(), "adapter_config.json: No such file"),
        (lambda folder: (folder / "adapter_config.json").write_text("{"), "adapter_config.json: not JSON"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapter_model.safetensors: is missing"),
        (_pickled, "adapter_model.bin is a pickle"),
        (_cut, "not a whole safetensors file"),
    ],
)
def test_damaged_folders_are_told_in_one_line(tiny_model: LoadedModel, folder: Path, damage: Edit, said: str) -> None:
    damage(folder)
    assert said in refusal(tiny_model, folder)
