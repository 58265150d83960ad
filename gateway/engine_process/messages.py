"""The messages between the processes: canonical values as MessagePack, by the names of their types, after a length.

Only the types of the modules that are listed here can be made from a message; nothing in one is ever run.
"""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from inspect import getmembers, isclass
from typing import Any, TypeAlias, cast

import msgspec

from adapters.canonical import (
    citation,
    embedding,
    errors,
    events,
    messages,
    model_memory,
    request,
    rerank,
    stop_reason,
    tokens,
    usage,
)
from adapters.canonical.errors import GatewayError, UpstreamError
from providers import abilities, base

__all__ = ["Frame", "pack", "read_frame", "unpack", "write_frame"]

Frame: TypeAlias = tuple[str, int, object]
"""What it is, which call it belongs to, and what it holds."""
_MODULES = (
    *(citation, embedding, errors, events, messages, model_memory, request, rerank, stop_reason, tokens, usage),
    *(abilities, base),
)
_TYPES: dict[str, type] = {
    name: kind
    for module in _MODULES
    for name, kind in getmembers(module, isclass)
    if kind.__module__ == module.__name__
}
_LENGTH = struct.Struct(">I")
_MAX_BYTES = 512 * 2**20


class _Code(IntEnum):
    """What MessagePack has no word for."""

    OBJECT = 1
    ENUM = 2
    TYPE = 3
    SET = 4
    MAP = 5
    LIST = 6


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(_plain(value))


def unpack(data: bytes) -> object:
    """Raises KeyError for a type that is not known, and TypeError or msgspec.MsgspecError for a broken message."""
    return _tuples(msgspec.msgpack.decode(data, ext_hook=_made))


def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    data = pack(frame)
    writer.write(_LENGTH.pack(len(data)) + data)


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Raises IncompleteReadError at the end."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _MAX_BYTES:
        raise ValueError("a message is too long")
    return cast("Frame", unpack(await reader.readexactly(length)))


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            held = {name: getattr(value, name) for name in value.__struct_fields__}
            return _ext(_Code.OBJECT, [type(value).__name__, {name: _plain(one) for name, one in held.items()}])
        case Enum():
            return _ext(_Code.ENUM, [type(value).__name__, value.value])
        case GatewayError():
            return _ext(_Code.OBJECT, [type(value).__name__, _told(value)])
        case type():
            return _ext(_Code.TYPE, value.__name__)
        case frozenset():
            return _ext(_Code.SET, [_plain(one) for one in value])
        case list():
            return _ext(_Code.LIST, [_plain(one) for one in value])
        case tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return _ext(_Code.MAP, [[_plain(key), _plain(one)] for key, one in value.items()])
        case _ if is_dataclass(value):
            held = {one.name: getattr(value, one.name) for one in fields(value)}
            return _ext(_Code.OBJECT, [type(value).__name__, {name: _plain(one) for name, one in held.items()}])
        case _:
            return value


def _ext(code: _Code, value: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code.value, msgspec.msgpack.encode(value))


def _told(error: GatewayError) -> dict[str, object]:
    told: dict[str, object] = {
        name: getattr(error, name) for name in ("message", "param", "code", "retry_after_s", "should_retry")
    }
    if isinstance(error, UpstreamError):
        told["upstream_status"] = error.upstream_status
    return told


def _made(code: int, data: memoryview) -> object:
    value: Any = msgspec.msgpack.decode(data, ext_hook=_made)
    match code:
        case _Code.OBJECT:
            name, held = value
            return _TYPES[name](**{key: _tuples(one) for key, one in held.items()})
        case _Code.ENUM:
            return _TYPES[value[0]](value[1])
        case _Code.TYPE:
            return _TYPES[value]
        case _Code.SET:
            return frozenset([_tuples(one) for one in value])
        case _Code.MAP:
            return {_tuples(key): _tuples(one) for key, one in value}
        case _Code.LIST:
            return _List([_tuples(one) for one in value])
        case _:
            raise TypeError(f"no value has the code {code}")


class _List(list[object]):
    """A list that was one before it was sent; MessagePack's own arrays were tuples."""


def _tuples(value: object) -> object:
    if isinstance(value, _List):
        return list(value)
    if isinstance(value, list):
        return tuple([_tuples(one) for one in value])
    return value
