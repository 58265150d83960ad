"""What a model makes of images: rows that stand in the place of their tokens' embeddings. Knows no files.

Rows of late images are kept, so that what is asked again about an image need not be read again.
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.generation import ImageInput

__all__ = ["EncodeImage", "ImageReader", "PlacedImage"]

EncodeImage = Callable[[Tensor], Tensor]
"""From pixels [3, S, S] to rows [n, hidden_size]."""

_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class PlacedImage:
    """Rows [stop - start, hidden_size] for these positions of a prompt. key: names the image's content."""

    start: int
    stop: int
    key: bytes
    rows: Tensor


class ImageReader:
    """One model's tower, with the rows of the images that were read last. For one thread at a time.

    An image is read by itself, so its rows do not depend on the images beside it.
    """

    def __init__(self, encode: EncodeImage | None, *, kept_bytes: int = _KEPT_BYTES) -> None:
        self._encode = encode
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._size = 0

    def placed(self, images: SequenceOf[ImageInput]) -> tuple[PlacedImage, ...]:
        """The images in their places. Blocks: seconds for a large tower on a CPU."""
        placed = []
        for image in images:
            rows = self._rows(image)
            placed.append(PlacedImage(image.start, image.start + len(rows), image.key, rows))
        return tuple(placed)

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
