"""What clients attach to things that are kept: 16 pairs at most, keys of 64 and values of 512 characters."""

from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

__all__ = ["METADATA"]

METADATA = Decoder(
    Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
        Meta(max_length=16),
    ]
)
