"""An answer's batches of events as bytes, and back: each event is the name of its type and its fields."""

from collections.abc import Sequence
from typing import get_args

import msgspec

from adapters.canonical.events import Event
from providers.base import Batch

__all__ = ["VERSION", "decode_answer", "encode_answer"]

VERSION = 1
"""Of this form; part of every key, so that what another version wrote is not read."""
_TYPES: dict[str, type[msgspec.Struct]] = {kind.__name__: kind for kind in get_args(Event)}
_encoder = msgspec.msgpack.Encoder()


class _Stored(msgspec.Struct, array_like=True):
    type: str
    fields: msgspec.Raw


def encode_answer(batches: Sequence[Batch]) -> bytes:
    return _encoder.encode(
        [[_Stored(type(event).__name__, msgspec.Raw(_encoder.encode(event))) for event in batch] for batch in batches]
    )


def decode_answer(data: bytes) -> list[Batch]:
    """Raises msgspec.MsgspecError, or KeyError, for what is no stored answer."""
    stored = msgspec.msgpack.decode(data, type=list[list[_Stored]])
    return [[_event(one) for one in batch] for batch in stored]


def _event(stored: _Stored) -> Event:
    event: Event = msgspec.msgpack.decode(stored.fields, type=_TYPES[stored.type])  # type: ignore[assignment]
    return event
