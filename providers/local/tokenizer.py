"""Text to token ids and back to bytes, for a model that lies on this machine.

Owns the `Tokenizer` protocol, what the ids mean (bytes, special, end of answer) and the disk cache of tokenizers that
were built from GGUF metadata. Knows no templates and keeps no state between calls; turning ids into text piece by piece
is detokenizer.py's.
"""

import json
import logging
import os
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tokenizers

from providers.local.gguf_tokenizer import TokenizerError, build_tokenizer, read_metadata, read_vocabulary
from providers.local.model_source import cache_folder
from providers.local.quoted_text import Quoter, is_quoted, quoting_backend

__all__ = ["FastTokenizer", "SpecialTokens", "Tokenizer", "TokenizerError", "load_tokenizer"]

CACHE_FORMAT = 4
"""Raised when what is built, or how it is stored, changes."""


class Tokenizer(Protocol):
    """What the local provider asks of a vocabulary. Safe to call from several threads."""

    @property
    def vocab_size(self) -> int:
        """One more than the highest id. The model may score more ids than that; they have no text."""
        ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer."""
        ...

    @property
    def bos_token(self) -> str:
        """The text of `bos_id` as chat templates want it; "" when the model has none."""
        ...

    @property
    def eos_token(self) -> str: ...

    def quoted(self, text: str) -> str:
        """A client's text for a chat template: what looks like a special token in it is marked as text.

        Only `encode` with `quoted` reads the marks."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, quoted: bool = False) -> list[int]:
        """The ids of `text`. The text of a special token inside it becomes that token, unless it was `quoted`.

        `add_special_tokens` adds what the model expects around a bare prompt (often a BOS, never a second one). A
        rendered chat template already holds it. Blocks for about 0.5 s per million characters, without holding the GIL.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for, maybe part of a character; b"" for an id without text."""
        ...

    def tokens_with(self, text: str) -> frozenset[int]:
        """All tokens whose bytes hold those of the text, which is not empty. Blocks for 1 ms, at first 0.2 s."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a marker and not text of the answer."""
        ...


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What a model's files say of its special tokens."""

    bos_id: int | None
    bos_token: str
    eos_token: str
    eos_ids: frozenset[int]


class FastTokenizer:
    """A `Tokenizer` over the tokenizers library. `backend` is for libraries that compile grammars against it."""

    def __init__(self, backend: tokenizers.Tokenizer, special: SpecialTokens) -> None:
        self.backend = backend
        self.bos_id = special.bos_id
        self.bos_token = special.bos_token
        self.eos_token = special.eos_token
        self.eos_ids = special.eos_ids
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added = {token_id: token.content for token_id, token in added.items()}
        self._byte_level = _is_byte_level(backend)
        ends_or_special = self._special_ids | self.eos_ids
        self._quoter = Quoter(self._added[token_id] for token_id in self._added if token_id in ends_or_special)
        self._bytes: dict[int, bytes] = {}

    @cached_property
    def vocab_size(self) -> int:
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def quoted(self, text: str) -> str:
        return self._quoter.quoted(text)

    @cached_property
    def _adds_bos(self) -> bool:
        """Whether a bare prompt gets a BOS."""
        return self.backend.encode("", add_special_tokens=True).ids[:1] == [self.bos_id]

    @cached_property
    def _quoting_backend(self) -> tokenizers.Tokenizer:
        return quoting_backend(self.backend)

    def encode(self, text: str, *, add_special_tokens: bool, quoted: bool = False) -> list[int]:
        backend = self._quoting_backend if quoted and is_quoted(text) else self.backend
        # The library's plain `encode` holds the GIL throughout: 1.7 s for 2 million characters (2 cores, 2026-11).
        ids = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        doubles = add_special_tokens and self._adds_bos and ids[:2] == [self.bos_id] * 2
        return ids[1:] if doubles else ids

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    @cached_property
    def _all_bytes(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Those of all tokens, one behind the other, and where each begins."""
        pieces = [self.token_bytes(token_id) for token_id in range(self.vocab_size)]
        return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([0, *map(len, pieces)])

    def tokens_with(self, text: str) -> frozenset[int]:
        all_bytes, starts = self._all_bytes
        wanted = text.encode()
        places = np.flatnonzero(all_bytes[: len(all_bytes) - len(wanted) + 1] == wanted[0])
        for offset in range(1, len(wanted)):
            places = places[all_bytes[places + offset] == wanted[offset]]
        tokens = np.searchsorted(starts, places, side="right") - 1
        return frozenset(tokens[places + len(wanted) <= starts[tokens + 1]].tolist())

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._to_bytes(token_id)
        return known

    def _to_bytes(self, token_id: int) -> bytes:
        if (text := self._added.get(token_id)) is not None:
            return (text if self._byte_level else text.replace("▁", " ")).encode()
        piece = self.backend.id_to_token(token_id) if token_id >= 0 else None
        if piece is None:
            return b""
        if self._byte_level:
            if all(character in _BYTE_OF_CHARACTER for character in piece):
                return bytes(_BYTE_OF_CHARACTER[character] for character in piece)
            return piece.encode()
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes.fromhex(piece[3:5])
        return piece.replace("▁", " ").encode()


def _byte_characters() -> dict[str, int]:
    """The printable character that byte-level BPE writes for each byte (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_characters()


def _is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    """Whether pieces are written in GPT-2's byte characters. The library shows a decoder's kind only in its repr."""
    return "ByteLevel(" in repr(backend.decoder)


def load_tokenizer(path: Path, *, cache: Path | None = None) -> FastTokenizer:
    """The tokenizer of a .gguf file or of a folder with tokenizer.json. Blocks.

    Raises TokenizerError, or the loader's ModelLoadError for a damaged file.

    What is built from a GGUF file is kept under `cache` (None: the user's cache folder), so that the next start takes
    a fraction of a second.
    """
    if path.is_dir():
        return _load_folder(path)
    return _load_gguf(path, cache or cache_folder() / "tokenizers")


def _load_folder(folder: Path) -> FastTokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise TokenizerError(f"{folder} has no tokenizer.json")
    backend = _parse(file.read_bytes(), file)
    backend.no_truncation()
    backend.no_padding()
    settings = _read_json(folder / "tokenizer_config.json")
    texts = {name: _token_text(settings.get(f"{name}_token")) for name in ("bos", "eos")}
    ends = {backend.token_to_id(texts["eos"])} if texts["eos"] else set()
    for name in ("generation_config.json", "config.json"):
        listed = _read_json(folder / name).get("eos_token_id")
        if listed is not None:
            ends |= set(listed if isinstance(listed, list) else [listed])
            break
    special = SpecialTokens(
        bos_id=backend.token_to_id(texts["bos"]) if texts["bos"] else None,
        bos_token=texts["bos"],
        eos_token=texts["eos"],
        eos_ids=frozenset(token_id for token_id in ends if token_id is not None),
    )
    return FastTokenizer(backend, special)


def _token_text(entry: Any) -> str:
    """A special token in tokenizer_config.json is a string, an object with `content`, or null."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else ""


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise TokenizerError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file} should hold a JSON object")
    return content


def _parse(content: bytes, file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing more precise
        raise TokenizerError(f"{file} is not a tokenizer: {error}") from error


def _load_gguf(path: Path, cache: Path) -> FastTokenizer:
    entry = _entry(path, cache)
    stored = _read_entry(entry)
    if stored is not None:
        return stored
    metadata = read_metadata(path)
    try:
        vocabulary = read_vocabulary(metadata)
        backend = build_tokenizer(vocabulary)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error
    special = SpecialTokens(
        bos_id=vocabulary.bos_id,
        bos_token="" if vocabulary.bos_id is None else vocabulary.tokens[vocabulary.bos_id],
        eos_token="" if vocabulary.eos_id is None else vocabulary.tokens[vocabulary.eos_id],
        eos_ids=vocabulary.eos_ids,
    )
    try:
        _write_entry(entry, backend, special)
    except OSError as error:
        logging.getLogger(__name__).warning("the tokenizer of %s is not cached: %s", path, error)
    return FastTokenizer(backend, special)


def _entry(path: Path, cache: Path) -> Path:
    """The cache file for `path` as it is now: half of its name stands for the path, half for its state."""
    status = path.stat()
    state = (status.st_size, status.st_mtime_ns, CACHE_FORMAT, tokenizers.__version__)
    halves: Iterable[object] = (path.resolve(), state)
    return cache / ("-".join(sha256(str(half).encode()).hexdigest()[:16] for half in halves) + ".json")


def _read_entry(entry: Path) -> FastTokenizer | None:
    """None where there is no entry or it is not what was written."""
    try:
        header, _, body = entry.read_bytes().partition(b"\n")
        facts = json.loads(header)
        if facts["crc32"] != zlib.crc32(body):
            return None
        special = SpecialTokens(**{**facts["special"], "eos_ids": frozenset(facts["special"]["eos_ids"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return FastTokenizer(_parse(body, entry), special)


def _write_entry(entry: Path, backend: tokenizers.Tokenizer, special: SpecialTokens) -> None:
    """Writes the entry whole or not at all, and removes what was kept for an earlier state of the same file."""
    body = backend.to_str().encode()
    facts = {"crc32": zlib.crc32(body), "special": {**asdict(special), "eos_ids": sorted(special.eos_ids)}}
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=entry.parent, prefix="new-", delete=False) as file:
        file.write(json.dumps(facts).encode() + b"\n" + body)
    os.replace(file.name, entry)
    for other in entry.parent.glob(f"{entry.name.split('-')[0]}-*.json"):
        if other != entry:
            other.unlink(missing_ok=True)
