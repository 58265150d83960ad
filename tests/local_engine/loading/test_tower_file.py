"""A tower in a file of llama.cpp's: every type of its numbers, old and new names, and what is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as FileType

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ModelLoadError
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import last, run, small_config
from tests.local_engine.models.tiny_image_oracles import (
    IMAGE,
    NAMES,
    TINY_IMAGE_ORACLES,
    ImageOracle,
    ImagePrompt,
    image_oracle,
    pixels_of,
)
from tests.local_engine.models.tiny_mmproj import decoder_of, write_mmproj
from tests.local_engine.tiny_models import Oracle, add_named_tokens, write_gguf

GEMMA, IDEFICS = "Gemma3ForConditionalGeneration", "Idefics3ForConditionalGeneration"


@pytest.fixture(scope="module", params=[GEMMA, IDEFICS])
def oracle(request: pytest.FixtureRequest) -> ImageOracle:
    return image_oracle(request.param)


@pytest.fixture(scope="module", params=TINY_IMAGE_ORACLES)
def each(request: pytest.FixtureRequest) -> ImageOracle:
    return image_oracle(request.param)


@pytest.fixture(scope="module")
def gemma() -> ImageOracle:
    return image_oracle(GEMMA)


def decoder(oracle: ImageOracle, folder: Path, names: dict[int, str] | None = None) -> Path:
    known = NAMES[oracle.model.config.model_type] if names is None else names
    add_vocabulary = partial(add_named_tokens, names=known)
    return write_gguf(Oracle(decoder_of(oracle.model)), folder / "model.gguf", add_vocabulary=add_vocabulary)


def load(oracle: ImageOracle, folder: Path, **changes: Any) -> LoadedModel:
    mmproj = write_mmproj(oracle.model, folder / "mmproj.gguf", **changes)
    return load_model(decoder(oracle, folder), EngineConfig(), mmproj=mmproj)


def rows(loaded: LoadedModel) -> torch.Tensor:
    assert loaded.encode_image is not None
    return loaded.encode_image(torch.from_numpy(pixels_of(1)))


@pytest.mark.parametrize("swapped", [False, True])
def test_its_rows_are_those_of_the_models_folder_whatever_the_converters_age(
    each: ImageOracle, swapped: bool, tmp_path: Path
) -> None:
    expected = rows(load_model(each.write(tmp_path / "folder"), EngineConfig()))
    assert torch.equal(rows(load(each, tmp_path, swapped=swapped)), expected)


@pytest.mark.parametrize(("kind", "off"), [(FileType.F16, 0.003), (FileType.BF16, 0.02), (FileType.Q8_0, 0.03)])
def test_numbers_may_be_of_fewer_bits(each: ImageOracle, kind: FileType, off: float, tmp_path: Path) -> None:
    expected = rows(load(each, tmp_path))
    found = rows(load(each, tmp_path, matrix_type=kind))
    assert 0 < float((found - expected).norm() / expected.norm()) < off


def test_beside_a_decoder_in_few_bits_it_runs_on_the_kernels(oracle: ImageOracle, tmp_path: Path) -> None:
    path, mmproj = oracle.write_pair(tmp_path, FileType.Q8_0)
    config = small_config()
    prompt = ImagePrompt([3, 17, 99, 101, pixels_of(1), 102, 64, 23])
    loaded = load_model(path, config, mmproj=mmproj)
    assert isinstance(loaded.open_executor(config), CpuExecutor)
    asked = prompt.request(SamplingParams(temperature=0.0, max_tokens=1, context_logits=True))
    found = []
    for model in (loaded, load_model(path, EngineConfig(dtype="float32"), mmproj=mmproj)):
        engine = Engine(model, config)
        sequence = engine.add(asked)
        logits = last(run(engine)[sequence]).context_logits
        assert logits is not None
        found.append(torch.from_numpy(logits))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 0.03


def test_gemmas_image_token_may_be_missing_as_in_most_files(gemma: ImageOracle, tmp_path: Path) -> None:
    named = NAMES["gemma3"] | {IMAGE: "<pad>"}
    mmproj = write_mmproj(gemma.model, tmp_path / "mmproj.gguf")
    vision = load_model(decoder(gemma, tmp_path, named), EngineConfig(), mmproj=mmproj).info.config.vision
    assert vision is not None
    assert (vision.token_id, vision.start_id, vision.end_id) == (100, 101, 102)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"projector_type": "pixtral"}, "'pixtral' is not supported; supported are .*gemma3, idefics3"),
        (
            {"projector_type": "idefics3"},
            "goes with Idefics3ForConditionalGeneration, .*, the model is Gemma3ForCausalLM",
        ),
        (
            {"projector_type": "qwen3vl_merger"},
            "goes with .*Qwen3VLForConditionalGeneration, .*, the model is Gemma3",
        ),
        ({"architecture": "llama"}, "general.architecture is 'llama', expected 'clip'"),
        ({"use_gelu": False}, "clip.use_gelu is false"),
        ({"scale_factor": 3}, "squares of 3 x 3 do not divide 4 x 4 patches"),
        ({"scale_factor": 0}, "number of patches a side that become one is 0"),
        ({"head_count": 5}, "5 heads do not divide its hidden_size 32"),
        ({"image_size": 1 << 20}, "image_size is 1048576, expected 1 to"),
        ({"image_size": 32}, r"has shape \[16, 32\], expected \[64, 32\] \(in the file: 'v.position_embd.weight'\)"),
        ({"leave_out": "v.blk.1.ln2.bias"}, r"is missing \(in the file: 'v.blk.1.ln2.bias'\)"),
        ({"leave_out": "mm.input_projection.weight"}, r"is missing \(in the file: 'mm.input_projection.weight'\)"),
        ({"extra": "v.class_embd"}, "tensor 'v.class_embd' has no place in this architecture"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused_by_name(
    gemma: ImageOracle, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelLoadError, match=reason) as caught:
        load(gemma, tmp_path, **changes)
    assert caught.value.path == tmp_path / "mmproj.gguf"


def test_a_file_that_was_cut_is_refused(gemma: ImageOracle, tmp_path: Path) -> None:
    mmproj = write_mmproj(gemma.model, tmp_path / "mmproj.gguf")
    path, whole = decoder(gemma, tmp_path), mmproj.read_bytes()
    for size in (0, 10, 200, len(whole) // 2, len(whole) - 64):
        mmproj.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError):
            load_model(path, EngineConfig(), mmproj=mmproj)


def test_a_vocabulary_without_tokens_for_images_is_refused(gemma: ImageOracle, tmp_path: Path) -> None:
    mmproj = write_mmproj(gemma.model, tmp_path / "mmproj.gguf")
    for missing, reason in ((IMAGE, "'<image_soft_token>'"), (102, "'<end_of_image>'")):
        names = {number: name for number, name in NAMES["gemma3"].items() if number != missing}
        path = decoder(gemma, tmp_path, names)
        with pytest.raises(ModelLoadError, match=f"has no token {reason}") as caught:
            load_model(path, EngineConfig(), mmproj=mmproj)
        assert caught.value.path == path


def test_a_folder_has_its_own_tower(gemma: ImageOracle, tmp_path: Path) -> None:
    mmproj = write_mmproj(gemma.model, tmp_path / "mmproj.gguf")
    with pytest.raises(ModelLoadError, match="goes with a GGUF, and folder is a folder"):
        load_model(gemma.write(tmp_path / "folder"), EngineConfig(), mmproj=mmproj)
