"""What a client keeps for the gateway, sealed: reasoning that a later turn must bring back, and compacted input.

A seal is AES-256-GCM under a key derived from a secret that is passed in, bound to the key's id, to what is sealed and
to the client's own key: `gws1.<key id>.<base64url of nonce and ciphertext>`. Pure but for the nonce, whose source is
passed in as well. Knows no request and no item.
"""

import base64
import binascii
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, Encoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import ProviderData, Reasoning
from adapters.raw_json import RAW_ITEMS

__all__ = ["ClientSeal", "Sealer"]

T = TypeVar("T")
_MARK = "gws1."
_NONCE_BYTES = 12


class Sealer:
    """Seals with one key. `key_id` stands in each blob in the clear; `secret` is of any length, or gives it when it is
    first needed."""

    def __init__(
        self, key_id: str, secret: bytes | Callable[[], bytes], random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._secret = secret
        self._head = f"{_MARK}{key_id}."
        self._random_bytes = random_bytes

    @cached_property
    def _cipher(self) -> AESGCM:
        secret = self._secret if isinstance(self._secret, bytes) else self._secret()
        return AESGCM(HKDF(SHA256(), 32, salt=None, info=b"llm-gateway seal 1").derive(secret))

    def seal(self, payload: bytes, bound_to: str) -> str:
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, payload, (self._head + bound_to).encode())
        return self._head + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, blob: str, bound_to: str) -> bytes:
        """Raises ValueError for what this key did not seal for the same client, or what was changed since."""
        if not blob.startswith(self._head):
            raise ValueError("it was sealed with a key that is not here")
        text = blob[len(self._head) :]
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], (self._head + bound_to).encode())
        except (binascii.Error, InvalidTag, ValueError) as error:
            raise ValueError("it is broken, or belongs to another client") from error


class _Thought(Struct, omit_defaults=True):
    text: str = ""
    summary: tuple[str, ...] = ()
    signature: str | None = None
    encrypted: str | None = None
    origin: str | None = None
    data_origin: str | None = None
    data: dict[str, Raw] = {}


_encode = Encoder().encode
_THOUGHT = Decoder(_Thought)


def _bytes_of(fields: dict[str, Raw]) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in fields.items()}


class ClientSeal:
    """Seals for one client. `owner` names its key; "" for a gateway without keys."""

    def __init__(self, sealer: Sealer, owner: str) -> None:
        self._sealer = sealer
        self._owner = owner

    @staticmethod
    def is_ours(blob: str) -> bool:
        """Whether a gateway sealed it (this one or another), rather than a provider."""
        return blob.startswith(_MARK)

    def seal_thought(self, part: Reasoning) -> str:
        thought = _Thought(part.text, part.summary, part.signature, part.encrypted, part.origin)
        if part.provider_data is not None:
            thought.data_origin = part.provider_data.origin
            thought.data = {name: Raw(raw) for name, raw in part.provider_data.fields.items()}
        return self._sealer.seal(_encode(thought), f"reasoning {self._owner}")

    def open_thought(self, blob: str, path: str) -> Reasoning:
        """Raises InvalidRequest that names the path."""
        found = self._open(blob, "reasoning", path, _THOUGHT)
        return Reasoning(
            text=found.text,
            summary=found.summary,
            signature=found.signature,
            encrypted=found.encrypted,
            origin=found.origin,
            provider_data=None if found.data_origin is None else ProviderData(found.data_origin, _bytes_of(found.data)),
        )

    def seal_items(self, items: Sequence[bytes]) -> str:
        """Input items (raw JSON) that stand behind a compaction item."""
        payload = orjson.dumps([orjson.Fragment(item) for item in items])
        return self._sealer.seal(payload, f"compaction {self._owner}")

    def open_items(self, blob: str, path: str) -> list[bytes]:
        """Raises InvalidRequest that names the path."""
        return [bytes(raw) for raw in self._open(blob, "compaction", path, RAW_ITEMS)]

    def _open(self, blob: str, kind: str, path: str, decoder: Decoder[T]) -> T:
        try:
            return decoder.decode(self._sealer.open(blob, f"{kind} {self._owner}"))
        except (ValueError, DecodeError) as error:
            raise InvalidRequest.at(
                path, f"this sealed content can't be opened: {error}", code="invalid_encrypted_content"
            ) from error
