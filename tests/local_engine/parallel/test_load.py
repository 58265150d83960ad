"""Which models processes share, and what is refused before any is started."""

import json
from pathlib import Path

import pytest

from local_engine.config import EngineConfig
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.loading.load import load_model
from local_engine.parallel.group import RankGroup
from local_engine.parallel.load import describe_shares, load_parallel
from local_engine.parallel.messages import Kind
from tests.local_engine.engine_driver import small_config
from tests.local_engine.tiny_models import tiny_oracle, write_safetensors


def refusal(path: Path, config: EngineConfig) -> str:
    with pytest.raises((ModelLoadError, InvalidInput)) as caught:
        load_parallel(path, config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_does_not_divide_is_refused_by_name(tiny_folder: Path, tmp_path: Path) -> None:
    assert refusal(tiny_folder, EngineConfig(tensor_parallel=3)) == (
        "model: tensor_parallel: 3 processes cannot share it: 4 query heads do not divide by 3"
    )
    odd = write_safetensors(tiny_oracle(intermediate_size=34, num_attention_heads=4), tmp_path / "odd")
    assert "intermediate_size 34 does not divide by 4" in refusal(odd, EngineConfig(tensor_parallel=4))
    three = tiny_oracle(hidden_size=96, num_attention_heads=6, num_key_value_heads=3)
    folder = write_safetensors(three, tmp_path / "three")
    assert "3 kv heads and 2 do not divide one another" in refusal(folder, EngineConfig(tensor_parallel=2))


def test_weights_that_the_cpu_kernels_alone_have_are_refused(tiny_folder: Path) -> None:
    config = EngineConfig(tensor_parallel=2, weights="int8")
    assert refusal(tiny_folder, config) == "model: weights: int8 needs the CPU kernels, which compute in one process"


def test_auto_is_one_process_on_a_cpu(tiny_folder: Path) -> None:
    assert describe_shares(tiny_folder, EngineConfig(tensor_parallel="auto")) == "in one process"
    loaded = load_parallel(tiny_folder, EngineConfig(tensor_parallel="auto"))
    loaded.open_executor(small_config()).close()


def test_kv_heads_fewer_than_the_processes_are_there_several_times(tiny_folder: Path) -> None:
    assert describe_shares(tiny_folder, EngineConfig(tensor_parallel=4)) == (
        "shared by 4 processes: 1 of 4 heads, 1 of 2 kv heads (each on 2), 16 of 64 of the width "
        "and 32 of 128 tokens each"
    )


def test_one_process_does_not_read_a_model_that_several_are_to_share(tiny_folder: Path) -> None:
    with pytest.raises(InvalidInput, match="tensor_parallel: is 2, and the model is read by 1"):
        load_model(tiny_folder, EngineConfig(tensor_parallel=2))


def test_a_file_that_is_wrong_leaves_the_processes_ready_for_another(
    pair: RankGroup, tiny_folder: Path, tmp_path: Path
) -> None:
    broken = write_safetensors(tiny_oracle(), tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    config = EngineConfig(tensor_parallel=2)
    with pytest.raises(ModelLoadError, match="not a whole safetensors file"):
        load_parallel(broken, config, group=pair)
    loaded = load_parallel(tiny_folder, config, group=pair)
    executor = loaded.open_executor(small_config())
    with pytest.raises(InvalidInput, match="serves one engine at a time"):
        loaded.open_executor(small_config())
    executor.close()


def test_a_wrong_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tensor_parallel: must be an integer from 1 to 64"):
        EngineConfig(tensor_parallel=0)


def test_a_message_of_any_length_arrives_and_an_adapter_that_cannot_be_read_ends_nothing(
    pair: RankGroup, tiny_folder: Path
) -> None:
    loaded = load_parallel(tiny_folder, EngineConfig(tensor_parallel=2), group=pair)
    with pytest.raises(ModelLoadError, match=r"the-end: adapter_config\.json: File name too long"):
        pair.ask(Kind.ADAPTER, json.dumps({"number": 1, "folder": "a/" * 20_000 + "the-end"}).encode())
    loaded.open_executor(small_config()).close()
