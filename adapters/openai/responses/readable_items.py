"""Items that stay whole for servers of this API, and that other models can be told as text."""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.messages import Opaque, Text
from adapters.openai.vocabulary import RESPONSES

__all__ = ["item_as_text"]


class _Text(Struct):
    text: str = ""


class _Output(Struct, tag_field="type", tag="function_call_output"):
    """What a tool gave that no call asked for: agents tell their models so what has changed."""

    output: str | list[_Text]
    name: str | None = None

    @property
    def told(self) -> str:
        text = self.output if isinstance(self.output, str) else "\n".join([part.text for part in self.output])
        return text if self.name is None else f"{self.name}: {text}"


_READABLE = Decoder(_Output)


def item_as_text(part: Opaque) -> Text | None:
    """None for an item that says nothing outside of its dialect."""
    if part.origin != RESPONSES:
        return None
    try:
        return Text(text=_READABLE.decode(part.raw).told)
    except DecodeError:
        return None
