"""What the local provider asks of whatever makes a model's input of an image file. Imports no image library."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ImageProcessor", "Pixels", "ReadyImage"]

Pixels = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReadyImage:
    """`text` stands in the prompt where the template wrote its mark; in it, the tokens of each of `tiles` in turn, as
    many as `tokens`."""

    text: str
    tiles: tuple[Pixels, ...]
    tokens: int


class ImageProcessor(Protocol):
    """`mark`: what a chat template writes for an image. `token_id`: the token of images."""

    @property
    def mark(self) -> str: ...
    @property
    def token_id(self) -> int: ...

    def ready(self, raw: bytes, path: str) -> ReadyImage:
        """Of a file's bytes. Raises InvalidRequest, naming `path`. Blocks: 0.2 s for 10 million pixels."""
        ...
