"""Variants of Qwen's models that read images: their files, the positions of their tokens, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as FileType
from safetensors.torch import load_file, save_file

from local_engine.attention_config import RopeConfig
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.images import PlacedImage, axis_positions
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.layers.rope import frequency_axes
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import last, run, small_config
from tests.local_engine.models.against_transformers import refusal
from tests.local_engine.models.tiny_image_oracles import IMAGE, ImageOracle, ImagePrompt, image_oracle, pixels_of

QWEN2_5, QWEN3, QWEN3_MOE = (f"{name}ForConditionalGeneration" for name in ("Qwen2_5_VL", "Qwen3VL", "Qwen3VLMoe"))
PROMPT = ImagePrompt([3, 101, pixels_of(1, 24, 40), 102, 64, 101, pixels_of(2, 16, 8), 102, 9])
TEXT = ImagePrompt([44, 9, 81, 60, 61, 62, 14])


def assert_alike(loaded: LoadedModel, oracle: ImageOracle, prompt: ImagePrompt = PROMPT) -> None:
    """At every position."""
    torch.testing.assert_close(logits(loaded, prompt), oracle.logits(prompt), atol=5e-4, rtol=1e-4)


def logits(loaded: LoadedModel, prompt: ImagePrompt) -> torch.Tensor:
    engine = Engine(loaded, small_config(kv_dtype="float32"))
    asked = SamplingParams(temperature=0.0, max_tokens=1, context_logits=True)
    sequence = engine.add(prompt.request(asked))
    found = last(run(engine)[sequence]).context_logits
    assert found is not None
    return torch.from_numpy(found)


def change(folder: Path, part: str, **values: Any) -> Path:
    """Of config.json, in one of its objects."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    (config[part] if part else config).update(values)
    file.write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", [QWEN2_5, QWEN3])
def test_published_files_may_have_the_texts_keys_beside_the_towers_and_a_tied_head(
    name: str, tied: bool, tmp_path: Path
) -> None:
    oracle = image_oracle(name, tie_word_embeddings=tied)
    folder = oracle.write(tmp_path)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    rope = config["text_config"].pop("rope_parameters")
    config["text_config"] |= {"rope_theta": rope["rope_theta"]}
    config["text_config"]["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    if name == QWEN2_5:
        config |= config.pop("text_config")
    file.write_text(json.dumps(config))
    assert_alike(load_model(folder, EngineConfig()), oracle)


def test_experts_in_published_files_have_their_inputs_first(tmp_path: Path) -> None:
    oracle = image_oracle(QWEN3_MOE)
    folder = oracle.write(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    turned = {
        name: tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor for name, tensor in tensors.items()
    }
    assert any(".experts." in name for name in tensors)
    save_file(turned, folder / "model.safetensors", metadata={"format": "pt"})
    assert_alike(load_model(folder, EngineConfig()), oracle)


def test_a_gguf_without_its_tower_is_a_text_model(tmp_path: Path) -> None:
    oracle = image_oracle(QWEN3)
    decoder, mmproj = oracle.write_pair(tmp_path, FileType.F32)
    config = small_config(kv_dtype="float32")
    alone, both = load_model(decoder, EngineConfig()), load_model(decoder, EngineConfig(), mmproj=mmproj)
    for loaded in (alone, both):
        assert isinstance(loaded.open_executor(config), CpuExecutor)
        assert_alike(loaded, oracle, TEXT)
    with pytest.raises(InvalidInput, match="images: the model reads none"):
        Engine(alone, config).check(PROMPT.request(SamplingParams()))


@pytest.mark.parametrize("size", [(12, 16), (16, 20), (0, 16), (16, 0)])
def test_an_image_that_is_not_made_of_whole_squares_is_refused(size: tuple[int, int], tmp_path: Path) -> None:
    loaded = load_model(image_oracle(QWEN3).write(tmp_path), EngineConfig())
    asked = ImagePrompt([3, pixels_of(1, *size), 4]).request(SamplingParams())
    with pytest.raises(InvalidInput, match="expected 3 channels of multiples of 8"):
        Engine(loaded, small_config()).check(asked)


def test_positions_are_those_of_transformers_wherever_a_chunk_begins_and_ends() -> None:
    model = image_oracle(QWEN3).model.model
    grids = [(3, 5), (2, 1), (1, 4)]
    tokens, images = [9, 9], []
    for rows, columns in grids:
        count = rows * columns
        image = PlacedImage(len(tokens), len(tokens) + count, b"", torch.empty(0), (rows, columns))
        images.append(image)
        tokens += [*[IMAGE] * count, 9, 9, 9]
    ids = torch.tensor([tokens])
    patches = torch.tensor([[1, 2 * rows, 2 * columns] for rows, columns in grids])
    expected = model.get_rope_index(ids, mm_token_type_ids=(ids == IMAGE).int(), image_grid_thw=patches)[0][:, 0].T
    for start in range(len(tokens)):
        for stop in range(start + 1, len(tokens) + 1):
            found = axis_positions(images, start, stop)
            if found is None:
                assert stop <= 2
            else:
                assert found.tolist() == expected[start:stop].tolist(), (start, stop)


def test_frequencies_belong_to_axes_in_turn_or_side_by_side() -> None:
    sections = (4, 2, 3)
    side_by_side = frequency_axes(RopeConfig(mrope_sections=sections))
    in_turn = frequency_axes(RopeConfig(mrope_sections=sections, mrope_interleaved=True))
    assert side_by_side.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert in_turn.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 2]


@pytest.mark.parametrize(
    ("name", "part", "values", "reason"),
    [
        (QWEN3, "vision_config", {"hidden_act": "silu"}, "vision_config.hidden_act is 'silu', expected 'gelu_py"),
        (QWEN3, "vision_config", {"num_position_embeddings": 24}, "num_position_embeddings is 24, expected a square"),
        (QWEN3, "vision_config", {"deepstack_visual_indexes": [2, 0]}, "deepstack layers are [2, 0], expected some"),
        (QWEN3, "vision_config", {"deepstack_visual_indexes": [4]}, "deepstack layers are [4], expected some of its 4"),
        (QWEN3, "vision_config", {"deepstack_visual_indexes": [0, 1, 2, 3]}, "4 deepstack layers for 3 layers of the"),
        (QWEN3, "vision_config", {"temporal_patch_size": 1}, "temporal_patch_size is 1, expected 2"),
        (QWEN3, "vision_config", {"num_heads": 16}, "heads of 2 do not turn by two axes"),
        (QWEN3, "vision_config", {"out_hidden_size": 8, "patch_size": 0}, "patch_size is 0"),
        (QWEN3, "vision_config", {"rope_parameters": {"rope_theta": 5.0}}, "rope_theta is 5.0"),
        (QWEN3, "", {"vision_config": None}, "vision_config is missing"),
        (QWEN3, "", {"image_token_id": 128}, "the token of images is 128"),
        (QWEN2_5, "vision_config", {"window_size": 7}, "window_size is 7, expected 8 at least"),
        (QWEN2_5, "text_config", {"rope_parameters": {"rope_type": "default"}}, "mrope's sections are [16, 24, 24]"),
    ],
)
def test_shapes_that_cannot_be_are_refused(
    name: str, part: str, values: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    folder = image_oracle(name).write(tmp_path)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    if name == QWEN2_5 and part == "text_config" and "text_config" not in config:
        part = ""
    assert reason in refusal(change(folder, part, **values))
