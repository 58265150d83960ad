"""Input items as nearly all of them come: messages of text, calls of functions and their outputs, decoded in one step.

What has anything else in it goes the general way, field by field (`adapters.openai.responses.input_items`).
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from adapters.canonical.messages import Part, Text

__all__ = ["PlainCall", "PlainItem", "PlainMessage", "PlainOutput", "plain_item", "texts"]

_Name = Annotated[str, Meta(min_length=1)]


class _TextPart(Struct, forbid_unknown_fields=True):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Annotated[list[Raw], Meta(max_length=0)] | None = None
    logprobs: Raw = Raw()  # of an answer that is played back


_Content = str | list[_TextPart]


class _Item(Struct, forbid_unknown_fields=True, tag_field="type"):
    """The fields are what an item says about itself only because it was played back."""

    id: Raw = Raw()
    status: Raw = Raw()
    created_by: Raw = Raw()


class PlainMessage(_Item, tag="message", kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content
    phase: str | None = None


class PlainCall(_Item, tag="function_call", kw_only=True):
    call_id: _Name
    name: _Name
    arguments: str


class PlainOutput(_Item, tag="function_call_output", kw_only=True):
    call_id: _Name
    output: _Content


PlainItem = PlainMessage | PlainCall | PlainOutput
_decode = Decoder(PlainItem).decode


def plain_item(raw: bytes) -> PlainItem | None:
    """None: it has to be read the general way, which also says what is wrong."""
    try:
        return _decode(raw)
    except ValidationError:
        return None


def texts(content: _Content) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    return tuple([Text(text=part.text) for part in content])
