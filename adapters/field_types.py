"""Types of a request's fields that several dialects have: each decodes one raw value. What only one has stands with
its words."""

from typing import Annotated, Final

from msgspec import Meta
from msgspec.json import Decoder

from adapters.json_fields import RawDecoder

__all__ = [
    "BOOL",
    "COUNT",
    "FRACTION",
    "NAME",
    "OPEN_COUNT",
    "PENALTY",
    "POSITIVE",
    "RAW_OBJECT",
    "SHORT_TEXT",
    "TEMPERATURE",
    "TEXT",
    "TEXTS",
    "TOP_LOGPROBS",
    "WIDE_TEMPERATURE",
    "Fraction",
    "Name",
    "Penalty",
    "Positive",
    "ShortText",
    "Temperature",
]

Name = Annotated[str, Meta(min_length=1)]
ShortText = Annotated[str, Meta(max_length=512)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]

BOOL: Final = Decoder(bool)
TEXT: Final = Decoder(str)
TEXTS: Final = Decoder(list[str])
NAME: Final = Decoder(Name)
SHORT_TEXT: Final = Decoder(ShortText)
COUNT: Final = Decoder(Annotated[int, Meta(ge=0, le=2**31 - 1)])
OPEN_COUNT: Final = Decoder(Annotated[int, Meta(ge=-1, le=2**31 - 1)])
"""A count where -1 stands for as many as there are."""
POSITIVE: Final = Decoder(Positive)
TEMPERATURE: Final = Decoder(Temperature)
WIDE_TEMPERATURE: Final = Decoder(Annotated[float, Meta(ge=0, le=100)])
"""Of servers that name no upper bound."""
FRACTION: Final = Decoder(Fraction)
PENALTY: Final = Decoder(Penalty)
TOP_LOGPROBS: Final = Decoder(Annotated[int, Meta(ge=0, le=20)])
RAW_OBJECT: Final = RawDecoder("object")
