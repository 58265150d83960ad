"""Pixels and prompts are those of transformers' own processors, for images of every shape and kind."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters.canonical.errors import InvalidRequest
from local_engine.errors import ModelLoadError
from local_engine.vision_config import QwenTowerConfig, VisionConfig
from providers.local.image_input import ImageProcessor
from providers.local.image_processor import load_image_processor
from tests.providers.local.tiny_vision import KINDS, SIDE, picture, pixels_of, png, processor_of, write_vision_pair

SIZES = [(SIDE, SIDE), (40, 24), (24, 40), (17, 300), (300, 17), (1, 1), (5, 3), (48, 48), (47, 31), (500, 499)]
TEXTS = {
    256 + number: text
    for number, text in enumerate(("<start_of_image>", "<end_of_image>", "<soft>", "<image>", "<|image_pad|>"))
}
VISION = VisionConfig(
    hidden_size=16,
    intermediate_size=24,
    num_layers=1,
    num_heads=2,
    image_size=SIDE,
    patch_size=4,
    norm_eps=1e-6,
    square=2,
    token_id=258,
    bidirectional=True,
    start_id=256,
    end_id=257,
)


def loaded(folder: Path, kind: str, **changes: Any) -> ImageProcessor:
    """Of the file that transformers writes for such a model, with some of its keys changed."""
    processor_of(kind).image_processor.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    found = load_image_processor(folder, vision_of(kind), TEXTS.__getitem__)
    assert found is not None
    return found


def vision_of(kind: str) -> VisionConfig:
    if kind.startswith("qwen"):
        return replace(VISION, token_id=260, image_size=None, qwen=QwenTowerConfig("rms", "gated_silu"))
    return VISION if kind == "gemma3" else replace(VISION, token_id=259, start_id=None, end_id=None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_pixels_are_those_of_the_models_own_processor(
    kind: str, mode: str, size: tuple[int, int], tmp_path: Path
) -> None:
    image = picture(*size, seed=7, mode=mode)
    expected = processor_of(kind).image_processor(image, return_tensors="np", do_convert_rgb=True)
    tiles = loaded(tmp_path, kind).ready(png(image), "x").tiles
    for tile, pixels in zip(tiles, pixels_of(kind, expected), strict=True):
        np.testing.assert_array_equal(tile, pixels)


@pytest.mark.parametrize("kind", ["smolvlm", "idefics3"])
def test_images_that_are_not_to_be_cut_are_shown_whole(kind: str, tmp_path: Path) -> None:
    image = picture(100, 70)
    processor = processor_of(kind).image_processor
    expected = processor(image, return_tensors="np", do_image_splitting=False)["pixel_values"]
    (tile,) = loaded(tmp_path, kind, do_image_splitting=False).ready(png(image), "x").tiles
    np.testing.assert_array_equal(tile, expected[0, 0])


def test_the_settings_may_be_a_part_of_the_whole_processors(tmp_path: Path) -> None:
    inner = json.loads(processor_of("gemma3").image_processor.to_json_string())
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner, "image_seq_length": 4}))
    found = load_image_processor(tmp_path, VISION, TEXTS.__getitem__)
    assert found is not None
    assert found.ready(png(picture()), "x").text == "\n\n<start_of_image><soft><soft><soft><soft><end_of_image>\n\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_towers_gguf_says_as_much(kind: str, tmp_path: Path) -> None:
    _, mmproj = write_vision_pair(tmp_path, kind)
    found, expected = load_image_processor(mmproj, vision_of(kind), TEXTS.__getitem__), loaded(tmp_path, kind)
    assert found is not None
    for size in SIZES:
        ours, theirs = (processor.ready(png(picture(*size)), "x") for processor in (found, expected))
        assert ours.text == theirs.text
        np.testing.assert_array_equal(np.stack(ours.tiles), np.stack(theirs.tiles))


def test_a_folder_that_says_nothing_about_images_reads_none(tmp_path: Path) -> None:
    assert load_image_processor(tmp_path, VISION, TEXTS.__getitem__) is None


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("gemma3", {"do_pan_and_scan": True}, "do_pan_and_scan is true"),
        ("gemma3", {"do_normalize": False}, "do_normalize is false"),
        ("gemma3", {"size": {"height": 8, "width": SIDE}}, "the vision tower's is 16"),
        ("gemma3", {"image_processor_type": "CLIPImageProcessor"}, "'CLIPImageProcessor' is not known"),
        ("gemma3", {"image_mean": [0.5]}, "expected three numbers each"),
        ("gemma3", {"resample": 9}, "resample is 9"),
        ("smolvlm", {"max_image_size": {"longest_edge": 32}}, "max_image_size is 32"),
        ("smolvlm", {"size": {"longest_edge": 0}}, "size is 0"),
        ("qwen3_vl", {"patch_size": 14}, "patch_size is 14, the vision tower's is 4"),
        ("qwen3_vl", {"merge_size": 4}, "merge_size is 4, the vision tower's is 2"),
        ("qwen3_vl", {"size": {"shortest_edge": 9, "longest_edge": 8}}, "images of 9 to 8 pixels, expected 64 to"),
        ("qwen3_vl", {"size": {"shortest_edge": 64, "longest_edge": 1 << 29}}, "images of 64 to 536870912 pixels"),
    ],
)
def test_what_is_not_done_to_images_here_is_refused_by_name(
    kind: str, changes: Mapping[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        loaded(tmp_path, kind, **changes)


def test_a_square_of_one_size_is_nothing_for_a_tower_that_takes_any(tmp_path: Path) -> None:
    processor_of("gemma3").image_processor.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="squares of one size"):
        load_image_processor(tmp_path, vision_of("qwen3_vl"), TEXTS.__getitem__)


def test_the_least_and_most_pixels_may_have_older_names(tmp_path: Path) -> None:
    processor = loaded(tmp_path, "qwen2_5_vl", size=None, min_pixels=16 * 16, max_pixels=24 * 24)
    for size, shape in (((4, 4), (3, 16, 16)), ((100, 100), (3, 24, 24)), ((20, 15), (3, 16, 16))):
        assert processor.ready(png(picture(*size)), "x").tiles[0].shape == shape


@pytest.mark.parametrize(("kind", "side"), [("qwen2_5_vl", 56), ("qwen3_vl", 256)])
def test_where_a_towers_gguf_does_not_say_how_many_pixels_it_takes_they_are_those_of_the_published_models(
    kind: str, side: int, tmp_path: Path
) -> None:
    _, mmproj = write_vision_pair(tmp_path, kind, told=False)
    processor = load_image_processor(mmproj, vision_of(kind), TEXTS.__getitem__)
    assert processor is not None
    assert processor.ready(png(picture(40, 40)), "x").tiles[0].shape == (3, side, side)


def test_an_image_that_is_far_longer_than_wide_is_refused_by_its_place(tmp_path: Path) -> None:
    processor = loaded(tmp_path, "qwen3_vl")
    assert processor.ready(png(picture(200, 1)), "x").tiles
    with pytest.raises(InvalidRequest, match=r"201 x 1 pixels, at most 200 times") as caught:
        processor.ready(png(picture(201, 1)), "messages[0].content[1]")
    assert caught.value.param == "messages[0].content[1]"


def test_an_image_of_many_pixels_comes_out_in_the_models_size(tmp_path: Path) -> None:
    (tile,) = loaded(tmp_path, "gemma3").ready(png(Image.new("RGB", (4000, 3000), "red")), "x").tiles
    assert tile.shape == (3, SIDE, SIDE)
    assert tile[:, 3, 3].tolist() == [1.0, -1.0, -1.0]
