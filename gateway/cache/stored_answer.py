"""An answer as bytes, and back: its batches of events, each event as the name of its type and its fields, and what was
left out of the request for it, in the client's words."""

from collections.abc import Sequence
from typing import get_args

import msgspec

from adapters.canonical.events import Event
from providers.base import Batch

__all__ = ["VERSION", "decode_answer", "encode_answer"]

VERSION = 2
"""Of this form; part of every key, so that what another version wrote is not read."""
_TYPES: dict[str, type[msgspec.Struct]] = {kind.__name__: kind for kind in get_args(Event)}
_encoder = msgspec.msgpack.Encoder()


class _StoredEvent(msgspec.Struct, array_like=True):
    type: str
    fields: msgspec.Raw


class _StoredAnswer(msgspec.Struct, array_like=True):
    batches: list[list[_StoredEvent]]
    dropped: tuple[str, ...]


def encode_answer(batches: Sequence[Batch], dropped: tuple[str, ...]) -> bytes:
    events = [
        [_StoredEvent(type(event).__name__, msgspec.Raw(_encoder.encode(event))) for event in each] for each in batches
    ]
    return _encoder.encode(_StoredAnswer(events, dropped))


def decode_answer(data: bytes) -> tuple[list[Batch], tuple[str, ...]]:
    """The batches, and what was left out. Raises msgspec.MsgspecError, or KeyError, for what is no stored answer."""
    stored = msgspec.msgpack.decode(data, type=_StoredAnswer)
    return [[_event(one) for one in batch] for batch in stored.batches], stored.dropped


def _event(stored: _StoredEvent) -> Event:
    event: Event = msgspec.msgpack.decode(stored.fields, type=_TYPES[stored.type])  # type: ignore[assignment]
    return event
