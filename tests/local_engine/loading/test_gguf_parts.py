"""A model split over several GGUF files is the model, and parts that are missing or mixed up are named."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from local_engine.config import EngineConfig
from local_engine.errors import ModelLoadError
from local_engine.loading.gguf import GgufFile
from local_engine.loading.gguf_parts import is_later_part
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.tiny_models import Oracle


def part(folder: Path, number: int, count: int = 3) -> Path:
    return folder / f"tiny-{number:05d}-of-{count:05d}.gguf"


def split(whole: Path, folder: Path, *, count: int = 3, total: int | None = None) -> Path:
    """The model as llama.cpp's gguf-split writes it: all metadata in the first part, tensors in all."""
    with GgufFile(whole) as file:
        names = list(file.tensors)
        for index in range(count):
            writer = gguf.GGUFWriter(part(folder, index + 1, count), "")
            if index == 0:
                for key, value in gguf.GGUFReader(whole).fields.items():
                    if not key.startswith("GGUF."):
                        kind = value.types[0]
                        sub_type = value.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
                        writer.add_key_value(key, value.contents(), kind, sub_type)
            writer.add_uint16("split.no", index)
            writer.add_uint16("split.count", count)
            writer.add_int32("split.tensors.count", len(names) if total is None else total)
            for name in names[index::count]:
                tensor = file.tensors[name]
                writer.add_tensor(name, file.read(tensor).view(np.float32).reshape(tensor.shape))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
    return part(folder, 1, count)


def failure(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, EngineConfig())
    return str(caught.value)


def test_the_parts_load_as_one_model(oracle: Oracle, tiny_gguf: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    path = split(tiny_gguf, tmp_path)
    loaded = load_model(path, EngineConfig(), progress=lambda *call: calls.append(call))
    assert np.allclose(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4)
    assert calls[-1][0] == calls[-1][1] == sum(weight.numel() * 4 for weight in oracle.model.state_dict().values())


def test_a_missing_part_is_named(tiny_gguf: Path, tmp_path: Path) -> None:
    path = split(tiny_gguf, tmp_path)
    part(tmp_path, 3).unlink()
    assert failure(path) == "tiny-00003-of-00003.gguf: No such file or directory"


def test_a_later_part_points_to_the_first(tiny_gguf: Path, tmp_path: Path) -> None:
    split(tiny_gguf, tmp_path)
    assert failure(part(tmp_path, 2)) == (
        "tiny-00002-of-00003.gguf: part 2 of 3 of a split GGUF; load tiny-00001-of-00003.gguf"
    )


def test_parts_of_other_names_are_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    path = split(tiny_gguf, tmp_path).rename(tmp_path / "model.gguf")
    assert "one of 3 parts of a split GGUF, whose names must be like NAME-00001-of-00003.gguf" in failure(path)


def test_parts_in_the_wrong_place_are_named(tiny_gguf: Path, tmp_path: Path) -> None:
    path = split(tiny_gguf, tmp_path)
    part(tmp_path, 3).unlink()
    part(tmp_path, 2).rename(part(tmp_path, 3))
    split(tiny_gguf, tmp_path, count=2)
    part(tmp_path, 2, 2).rename(part(tmp_path, 2))
    assert failure(path) == "tiny-00002-of-00003.gguf: says it is part 2 of 2, expected 2 of 3"


def test_a_tensor_in_two_parts_and_a_count_that_is_off_are_named(tiny_gguf: Path, tmp_path: Path) -> None:
    assert "split.tensors.count is 9, the parts have 21 tensors" in failure(split(tiny_gguf, tmp_path, total=9))
    writer = gguf.GGUFWriter(part(tmp_path, 2), "")
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 3)
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reason = "tensor 'token_embd.weight' is in tiny-00001-of-00003.gguf too"
    assert failure(part(tmp_path, 1)) == f"tiny-00002-of-00003.gguf: {reason}"


def test_only_parts_after_the_first_are_later_ones() -> None:
    names = ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf", "q/a-00002-of-00002.gguf")
    assert [is_later_part(name) for name in names] == [False, True, False, True]
