"""What a model makes of images: rows that stand in the place of their tokens' embeddings. Knows no files.

Rows of late images are kept, so that what is asked again about an image need not be read again.
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.generation import ImageInput
from local_engine.vision_config import VisionConfig

__all__ = ["EncodeImage", "ImageReader", "PlacedImage", "axis_positions"]

EncodeImage = Callable[[Tensor], Tensor]
"""From pixels [3, height, width] to rows [n, (1 + num_stacked) * hidden_size]."""

_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class PlacedImage:
    """Rows for these tokens of a prompt, see `EncodeImage`. key: names the image's content.

    grid: rows and columns of its tokens, where positions follow them.
    """

    start: int
    stop: int
    key: bytes
    rows: Tensor
    grid: tuple[int, int] | None = None


def axis_positions(images: SequenceOf[PlacedImage], start: int, stop: int) -> npt.NDArray[np.int64] | None:
    """Positions of a sequence's tokens from start to stop by time, height and width: [stop - start, 3].

    The tokens of an image have one time, and with it begin its heights and widths; what follows goes on behind the
    longer side (Wang et al. 2024, section 2.1). None: all three are the token's number, as no image is before it.
    """
    placed = [(image, image.grid) for image in images if image.grid is not None and image.start < stop]
    if not placed:
        return None
    positions = np.repeat(np.arange(start, stop)[:, None], 3, axis=1)
    skipped = 0
    for image, grid in placed:
        low, high = max(image.start, start), min(image.stop, stop)
        cells = np.arange(low - image.start, high - image.start)
        positions[low - start : max(high, low) - start] = image.start - skipped
        positions[low - start : max(high, low) - start, 1:] += np.stack(np.divmod(cells, grid[1]), axis=1)
        saved = image.stop - image.start - max(grid)
        positions[max(image.stop - start, 0) :] -= saved
        skipped += saved
    return positions


class ImageReader:
    """One model's tower, with the rows of the images that were read last. For one thread at a time.

    An image is read by itself, so its rows do not depend on the images beside it.
    """

    def __init__(
        self, encode: EncodeImage | None, vision: VisionConfig | None, *, kept_bytes: int = _KEPT_BYTES
    ) -> None:
        self._encode = encode
        self._vision = vision
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._size = 0

    def placed(self, images: SequenceOf[ImageInput]) -> tuple[PlacedImage, ...]:
        """The images in their places. Blocks: seconds for a large tower on a CPU."""
        placed = []
        for image in images:
            rows = self._rows(image)
            placed.append(PlacedImage(image.start, image.start + len(rows), image.key, rows, self._grid(image)))
        return tuple(placed)

    def _grid(self, image: ImageInput) -> tuple[int, int] | None:
        vision = self._vision
        return None if vision is None or vision.qwen is None else vision.grid(*image.pixels.shape[1:])

    @torch.inference_mode()
    def _rows(self, image: ImageInput) -> Tensor:
        rows = self._kept.pop(image.key, None)
        if rows is None:
            if self._encode is None:
                raise ValueError("the model reads no images")
            rows = self._encode(torch.from_numpy(image.pixels))
            self._size += rows.nbytes
        self._kept[image.key] = rows
        while self._size > self._kept_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.nbytes
        return rows
