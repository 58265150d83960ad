"""Thought signatures: opaque proof that Gemini wants back in the part that it came with.

In the canonical form one is the signature of a thought: of the thought that stands right before the call or picture
that it signs (with or without text of its own), or that stands behind the text that it signs. So every client that
gives thoughts back gives signatures back. Chat clients find that of a call also where Google's own chat surface has it:

    {"id": ..., "function": {...}, "extra_content": {"google": {"thought_signature": "..."}}}
"""

from enum import Enum

import orjson
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.messages import ProviderData, Reasoning, ToolCall
from adapters.gemini.vocabulary import GEMINI
from adapters.origin_marks import marked, unmarked

__all__ = [
    "SKIPPED",
    "Place",
    "chat_data",
    "place_of",
    "placed_at",
    "sealed",
    "signature_in_chat",
    "signs_next",
    "unsealed",
]

SKIPPED = "skip_thought_signature_validator"
"""What the API takes for the signature of a call that it did not make (ai.google.dev, thought signatures, 2026-11)."""
_CHAT = "openai.chat"
_EXTRA = "extra_content"
_PLACE = "signature_place"
_HIDDEN = "encrypted:"
"""Before what is no signature but an encrypted thought; no signature has a colon."""


class Place(Enum):
    """Which part a signature came with: the thought's own, the one after it, or one before it, or none at all."""

    THOUGHT = b'"thought"'
    NEXT = b'"next"'
    BEHIND = b'"behind"'


_PLACED = {place: ProviderData(GEMINI, {_PLACE: place.value}) for place in Place}


class _Google(Struct):
    thought_signature: str | None = None


class _ExtraContent(Struct):
    google: _Google | None = None


_decode = Decoder(_ExtraContent).decode


def placed_at(place: Place) -> ProviderData:
    """What goes with a signature of Gemini, so that its own clients get it where it was."""
    return _PLACED[place]


def place_of(data: ProviderData | None) -> Place | None:
    """None where the signature is not Gemini's, or came back through clients that could not say."""
    raw = data.fields.get(_PLACE) if data is not None and data.origin == GEMINI else None
    return None if raw is None else Place(raw)


def sealed(signature: str | None, encrypted: str | None, origin: str | None) -> str | None:
    """What proves a thought, as a `thoughtSignature` that says whose it is: base64, since clients decode it."""
    if encrypted is not None:
        return marked(_HIDDEN + encrypted, origin or "")
    return None if signature is None else marked(signature, origin)


def unsealed(text: str, found: str | None, place: Place) -> Reasoning:
    """A thought, with what came as its signature from a client."""
    if not found:
        return Reasoning(text=text)
    blob, origin = unmarked(found)
    if origin is not None and blob.startswith(_HIDDEN):
        return Reasoning(text=text, encrypted=blob.removeprefix(_HIDDEN), origin=origin or None)
    return Reasoning(text=text, signature=blob, origin=origin, provider_data=placed_at(place))


def chat_data(signature: str, provider: str) -> ProviderData:
    """The signature of a call as chat clients carry it, with the name of the provider that made it."""
    google = {"thought_signature": sealed(signature, None, provider)}
    return ProviderData(_CHAT, {_EXTRA: orjson.dumps({"google": google})})


def signature_in_chat(call: ToolCall, provider: str) -> str | None:
    """What a chat client gave back with a call, where it is this provider's."""
    data = call.provider_data
    if data is None or data.origin != _CHAT or _EXTRA not in data.fields:
        return None
    try:
        google = _decode(data.fields[_EXTRA]).google
    except DecodeError:
        return None
    if google is None or google.thought_signature is None:
        return None
    signature, origin = unmarked(google.thought_signature)
    return signature if origin in (None, provider) else None


def signs_next(thought: Reasoning) -> bool:
    """Whether a signature belongs to the call or picture that follows the thought."""
    return place_of(thought.provider_data) in (None, Place.NEXT)
