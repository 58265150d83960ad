"""Turns as nearly all of them come: text, thoughts, calls and their results, decoded in one step.

What has anything else in it goes the general way, block by block (`adapters.anthropic.content`). Both give the same
parts.
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from adapters.canonical.messages import CacheHint, Part, Reasoning, Text, ToolCall, ToolResult
from adapters.field_types import Name
from adapters.json_fields import JsonObject
from adapters.origin_marks import unmarked

__all__ = ["PlainCache", "PlainTurn", "plain_content", "plain_turn", "plain_turns"]


class PlainCache(Struct, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None

    @property
    def hint(self) -> CacheHint:
        return CacheHint(ttl=self.ttl)


class _Block(Struct, forbid_unknown_fields=True, tag_field="type"):
    cache_control: PlainCache | None = None


class _Text(_Block, tag="text", kw_only=True):
    text: str


class _Thinking(_Block, tag="thinking", kw_only=True):
    thinking: str
    signature: str


class _ToolUse(_Block, tag="tool_use", kw_only=True):
    id: Name
    name: Annotated[str, Meta(max_length=512)]
    input: Raw

    def __post_init__(self) -> None:
        if not bytes(self.input).startswith(b"{"):
            raise ValueError("expected an object")


class _ToolResult(_Block, tag="tool_result", kw_only=True):
    tool_use_id: Name
    content: str | list[_Text] | None = None
    is_error: bool | None = None


_Blocks = Annotated[list[_Text | _Thinking | _ToolUse | _ToolResult], Meta(min_length=1)]


class PlainTurn(Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: str | _Blocks

    @property
    def parts(self) -> tuple[Part, ...]:
        return _parts(self.content)


_decode = Decoder(PlainTurn).decode
_ALL = Decoder(Annotated[list[PlainTurn], Meta(min_length=1)])
_CONTENT = Decoder(str | _Blocks)


def plain_turns(body: JsonObject) -> list[PlainTurn] | None:
    """All messages of a body. None: one of them, at least, has to be read the general way; they stay in the body."""
    return body.take_if("messages", _ALL)


def plain_turn(raw: Raw) -> PlainTurn | None:
    """None: it has to be read the general way, which also says what is wrong."""
    try:
        return _decode(raw)
    except ValidationError:
        return None


def plain_content(fields: JsonObject, name: str) -> tuple[Part, ...] | None:
    """A string, or a list of blocks. None: it has to be read the general way, and stays in its object."""
    found = fields.take_if(name, _CONTENT)
    return None if found is None else _parts(found)


def _parts(content: str | list[_Text] | _Blocks | None) -> tuple[Part, ...]:
    """Empty text says nothing."""
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    return tuple([_part(block) for block in content or () if not (isinstance(block, _Text) and not block.text)])


def _part(block: _Text | _Thinking | _ToolUse | _ToolResult) -> Part:
    cache = None if block.cache_control is None else block.cache_control.hint
    match block:
        case _Text():
            return Text(text=block.text, cache=cache)
        case _ToolUse():
            return ToolCall(id=block.id, name=block.name, arguments=bytes(block.input).decode(), cache=cache)
        case _ToolResult():
            parts = _parts(block.content)
            return ToolResult(call_id=block.tool_use_id, parts=parts, is_error=block.is_error, cache=cache)
        case _Thinking():
            signature, origin = unmarked(block.signature)
            return Reasoning(text=block.thinking, signature=signature or None, origin=origin, cache=cache)
