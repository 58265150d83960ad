"""Blocks of Anthropic's own kinds that any model can read, as text."""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.messages import Opaque, Text

__all__ = ["as_text"]


class _Text(Struct):
    text: str = ""


class _SearchResult(Struct, tag_field="type", tag="search_result"):
    title: str
    source: str
    content: list[_Text]

    @property
    def told(self) -> str:
        return "\n".join([self.title, self.source, *[block.text for block in self.content]])


class _ToolReference(Struct, tag_field="type", tag="tool_reference"):
    """A search of tools found this one. What is declared to other models, they see from the first turn on."""

    tool_name: str

    @property
    def told(self) -> str:
        return self.tool_name


_READABLE = Decoder(_SearchResult | _ToolReference)


def as_text(part: Opaque) -> Text | None:
    """None for a block that says nothing outside of its dialect."""
    if part.origin != MESSAGES:
        return None
    try:
        return Text(text=_READABLE.decode(part.raw).told)
    except DecodeError:
        return None
