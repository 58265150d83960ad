"""How a model wants images: sized, normalised and cut into pixels, and what stands for one in the prompt.

Owns what transformers' image processors and processors of a model do (5.24, the ones over Pillow), read from the files
that they leave in its folder, or from what llama.cpp writes of them in a tower's GGUF. Knows no network.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from adapters.canonical.errors import InvalidRequest
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile
from local_engine.loading.safetensors import read_json
from local_engine.models.mmproj import projector_type
from local_engine.vision_config import VisionConfig
from providers.local.image_decoding import decode_image
from providers.local.image_input import ImageProcessor, Pixels, ReadyImage

__all__ = ["load_image_processor"]

TokenText = Callable[[int], str]
"""The text of a token by its id."""

_FILES: Final = ("preprocessor_config.json", "processor_config.json")
_IMAGE, _AROUND, _GLOBAL = "<image>", "<fake_token_around_image>", "<global-img>"
"""What Idefics3 writes around tiles."""
_MIDDLE = (0.5, 0.5, 0.5)
"""Mean and deviation where the files name none."""
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The same for Qwen's."""
_LONGEST_SHAPE: Final = 200
"""How much longer than wide an image may be for Qwen's."""
_QWEN_PIXELS: Final[Mapping[str, tuple[int, int]]] = {
    "qwen2vl_merger": (56 * 56, 12_845_056),
    "qwen2.5vl_merger": (56 * 56, 12_845_056),
    "qwen3vl_merger": (256 * 256, 4096 * 4096),
}
"""How few and how many pixels the published models have an image in, where a tower's GGUF does not say."""
_MAX_SIDE: Final = 4096
"""To which Idefics3 shrinks an image before it is cut, whatever its files say."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """From bytes to what a tower was trained on."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, image: Image.Image) -> Pixels:
        """[3, height, width]."""
        scaled = (np.asarray(image).astype(np.float64) * self.scale).astype(np.float32)
        mean, std = (np.asarray(each, np.float32) for each in (self.mean, self.std))
        return np.ascontiguousarray(((scaled - mean) / std).transpose(2, 0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """Gemma 3: one square of a fixed size, whatever the image's shape."""

    mark: str
    token_id: int
    tokens: int
    text: str
    side: int
    filter: Image.Resampling
    numbers: _Numbers

    def ready(self, raw: bytes, path: str) -> ReadyImage:
        square = decode_image(raw, path).resize((self.side, self.side), self.filter)
        return ReadyImage(self.text, (self.numbers.pixels(square),), self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiled:
    """Idefics3 and SmolVLM: squares in rows and columns, and the whole image once more as one."""

    mark: str
    token_id: int
    tokens: int
    side: int
    longest: int
    splits: bool
    filter: Image.Resampling
    numbers: _Numbers

    def ready(self, raw: bytes, path: str) -> ReadyImage:
        image = decode_image(raw, path)
        image = image.resize(_fitted(image.size, self.longest), self.filter)
        if not self.splits:
            return self._single(image.resize((self.side, self.side), self.filter))
        image = image.resize(_rounded_up(image.size, self.side), self.filter)
        columns, rows = (length // self.side for length in image.size)
        if (columns, rows) == (1, 1):
            return self._single(image)
        corners = [(x * self.side, y * self.side) for y in range(rows) for x in range(columns)]
        tiles = [image.crop((x, y, x + self.side, y + self.side)) for x, y in corners]
        tiles.append(image.resize((self.side, self.side), self.filter))
        return ReadyImage(self._grid_text(rows, columns), tuple(map(self.numbers.pixels, tiles)), self.tokens)

    def _single(self, image: Image.Image) -> ReadyImage:
        text = f"{_AROUND}{_GLOBAL}{self.mark * self.tokens}{_AROUND}"
        return ReadyImage(text, (self.numbers.pixels(image),), self.tokens)

    def _grid_text(self, rows: int, columns: int) -> str:
        tile = self.mark * self.tokens
        lines = [
            "".join(f"{_AROUND}<row_{row + 1}_col_{column + 1}>{tile}" for column in range(columns)) + "\n"
            for row in range(rows)
        ]
        return f"{''.join(lines)}\n{_AROUND}{_GLOBAL}{tile}{_AROUND}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnySize:
    """Qwen's: about as large as the image is, in whole squares."""

    mark: str
    token_id: int
    vision: VisionConfig
    least_pixels: int
    most_pixels: int
    filter: Image.Resampling
    numbers: _Numbers

    def ready(self, raw: bytes, path: str) -> ReadyImage:
        image = decode_image(raw, path)
        if max(image.size) > _LONGEST_SHAPE * min(image.size):
            width, height = image.size
            reason = f"the image has {width} x {height} pixels, at most {_LONGEST_SHAPE} times as long as wide are read"
            raise InvalidRequest.at(path, reason)
        pixels = self.numbers.pixels(image.resize(self._fitted(image.size), self.filter))
        grid = self.vision.grid(*pixels.shape[1:])
        assert grid is not None
        tokens = grid[0] * grid[1]
        return ReadyImage(self.mark * tokens, (pixels,), tokens)

    def _fitted(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height: to the nearest squares, shrunk or enlarged where these have too many pixels or too few."""
        unit = self.vision.unit
        width, height = (round(length / unit) * unit for length in size)
        if width * height > self.most_pixels:
            ratio = math.sqrt(size[0] * size[1] / self.most_pixels)
            width, height = (max(unit, math.floor(length / ratio / unit) * unit) for length in size)
        elif width * height < self.least_pixels:
            ratio = math.sqrt(self.least_pixels / (size[0] * size[1]))
            width, height = (math.ceil(length * ratio / unit) * unit for length in size)
        return width, height


def _fitted(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Width and height with this longer side, the shorter one made even; then no larger than _MAX_SIDE."""
    width, height = size
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    width, height = max(width, 1), max(height, 1)
    ratio = width / height
    if width >= height and width > _MAX_SIDE:
        width, height = _MAX_SIDE, int(_MAX_SIDE / ratio)
    elif height > width and height > _MAX_SIDE:
        width, height = int(_MAX_SIDE * ratio), _MAX_SIDE
    return max(width, 1), max(height, 1)


def _rounded_up(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Width and height as multiples of `side`: the longer one first, the other from what that makes of it."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        return width, math.ceil(int(width / ratio) / side) * side
    height = math.ceil(height / side) * side
    return math.ceil(int(height * ratio) / side) * side, height


def load_image_processor(path: Path, vision: VisionConfig, text_of: TokenText) -> ImageProcessor | None:
    """What the files of a folder, or a tower's GGUF, say of a model's images; None where they say nothing.

    Raises ModelLoadError.
    """
    fields = _settings(path) if path.is_dir() else _gguf_settings(path)
    if fields is None:
        return None
    named = fields.text("image_processor_type")
    kind = named.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor")
    if kind not in _KINDS:
        fields.refuse(f"image_processor_type {named!r} is not known; known are {', '.join(_KINDS)}")
    for name in ("do_resize", "do_rescale", "do_normalize"):
        if not fields.boolean(name, True):
            fields.refuse(f"{name} is false, expected true")
    return _KINDS[kind](fields, vision, text_of)


def _settings(folder: Path) -> FieldReader | None:
    """Of the image processor: a file of its own, or a part of the whole processor's."""
    for name in _FILES:
        file = folder / name
        if file.is_file():
            fields = FieldReader(file, read_json(file))
            inner = fields.table("image_processor")
            if inner is not None or name == _FILES[0]:
                return inner or fields
    return None


def _gguf_settings(path: Path) -> FieldReader:
    """Of a tower's file, under the names of transformers."""
    with GgufFile(path) as file:
        metadata = file.metadata
    fields = FieldReader(path, metadata)
    settings: dict[str, object] = {"image_processor_type": projector_type(fields)}
    for name in ("image_mean", "image_std"):
        numbers = metadata.get(f"clip.vision.{name}")
        settings[name] = numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
    if settings["image_processor_type"] == "idefics3":
        longest = fields.optional_integer("clip.vision.preproc_image_size")
        settings["max_image_size"] = {"longest_edge": fields.integer("clip.vision.image_size")}
        settings["size"] = None if longest is None else {"longest_edge": longest}
    if (sizes := _QWEN_PIXELS.get(str(settings["image_processor_type"]))) is not None:
        names = ("clip.vision.image_min_pixels", "clip.vision.image_max_pixels")
        least, most = (fields.integer(name, default) for name, default in zip(names, sizes, strict=True))
        settings["size"] = {"shortest_edge": least, "longest_edge": most}
    return FieldReader(path, settings)


def _square(fields: FieldReader, vision: VisionConfig) -> tuple[int, int]:
    """Pixels a side, and tokens, of every image."""
    side = vision.image_size
    if side is None or (grid := vision.grid(side, side)) is None:
        fields.refuse("image_processor_type makes squares of one size, which are not what the vision tower takes")
    return side, grid[0] * grid[1]


def _gemma3(fields: FieldReader, vision: VisionConfig, text_of: TokenText) -> ImageProcessor:
    if fields.boolean("do_pan_and_scan", False):
        fields.refuse("do_pan_and_scan is true; images here are seen as a whole")
    size, (side, tokens) = fields.table("size"), _square(fields, vision)
    sides = {side} if size is None else {size.integer("height"), size.integer("width")}
    if sides != {side}:
        fields.refuse(f"size is {sorted(sides)}, the vision tower's is {side}")
    if vision.start_id is None or vision.end_id is None:
        fields.refuse("the model has no tokens around images")
    start, end = text_of(vision.start_id), text_of(vision.end_id)
    return _Whole(
        mark=start,
        token_id=vision.token_id,
        tokens=tokens,
        text=f"\n\n{start}{text_of(vision.token_id) * tokens}{end}\n\n",
        side=side,
        filter=_filter(fields, Image.Resampling.BILINEAR),
        numbers=_numbers(fields),
    )


def _idefics3(fields: FieldReader, vision: VisionConfig, text_of: TokenText) -> ImageProcessor:
    tile, whole = fields.table("max_image_size"), fields.table("size")
    own, tokens = _square(fields, vision)
    side = 364 if tile is None else tile.integer("longest_edge")
    if side != own:
        fields.refuse(f"max_image_size is {side}, the vision tower's is {own}")
    longest = 4 * side if whole is None else whole.integer("longest_edge")
    if not 1 <= longest <= 1 << 15:
        fields.refuse(f"size is {longest}, expected 1 to {1 << 15}")
    if text_of(vision.token_id) != _IMAGE:
        fields.refuse(f"the token of images is {text_of(vision.token_id)!r}, expected {_IMAGE!r}")
    return _Tiled(
        mark=_IMAGE,
        token_id=vision.token_id,
        tokens=tokens,
        side=side,
        longest=longest,
        splits=fields.boolean("do_image_splitting", True),
        filter=_filter(fields, Image.Resampling.LANCZOS),
        numbers=_numbers(fields),
    )


def _qwen(fields: FieldReader, vision: VisionConfig, text_of: TokenText) -> ImageProcessor:
    for name, own in (("patch_size", vision.patch_size), ("merge_size", vision.square)):
        if (value := fields.integer(name, own)) != own:
            fields.refuse(f"{name} is {value}, the vision tower's is {own}")
    size = fields.table("size") or fields
    least = fields.integer("min_pixels", size.integer("shortest_edge", 56 * 56))
    most = fields.integer("max_pixels", size.integer("longest_edge", 28 * 28 * 1280))
    if not vision.unit**2 <= least <= most <= 1 << 28:
        fields.refuse(f"images of {least} to {most} pixels, expected {vision.unit**2} to {1 << 28}")
    return _AnySize(
        mark=text_of(vision.token_id),
        token_id=vision.token_id,
        vision=vision,
        least_pixels=least,
        most_pixels=most,
        filter=_filter(fields, Image.Resampling.BICUBIC),
        numbers=_numbers(fields, mean=_CLIP_MEAN, std=_CLIP_STD),
    )


def _filter(fields: FieldReader, default: Image.Resampling) -> Image.Resampling:
    number = fields.integer("resample", default.value)
    known = {each.value: each for each in Image.Resampling}
    if number not in known:
        fields.refuse(f"resample is {number}, expected one of {sorted(known)}")
    return known[number]


def _numbers(fields: FieldReader, mean: tuple[float, ...] = _MIDDLE, std: tuple[float, ...] = _MIDDLE) -> _Numbers:
    """mean, std: where the file says none."""
    mean, std = fields.numbers("image_mean") or mean, fields.numbers("image_std") or std
    if len(mean) != 3 or len(std) != 3 or 0.0 in std:
        fields.refuse("image_mean and image_std: expected three numbers each, of the latter none that is 0")
    return _Numbers(fields.number("rescale_factor", 1 / 255), mean, std)


_KINDS: Mapping[str, Callable[[FieldReader, VisionConfig, TokenText], ImageProcessor]] = {
    "Gemma3": _gemma3,
    "Idefics3": _idefics3,
    "SmolVLM": _idefics3,
    "Qwen2VL": _qwen,
    "Qwen2_5_VL": _qwen,
    "gemma3": _gemma3,
    "idefics3": _idefics3,
    **dict.fromkeys(_QWEN_PIXELS, _qwen),
}
"""By `image_processor_type`, without what its name ends in, and by llama.cpp's types of projectors."""
