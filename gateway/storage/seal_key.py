"""The key that seals what clients carry, where run.yaml names none: made once, kept beside the database."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from gateway.storage.place import FilePlace, MemoryPlace, Place, data_folder

__all__ = ["kept_secret"]

_BYTES = 32
_NAME = "gateway.seal-key"


def kept_secret(place: Place) -> bytes:
    """The secret, made if there is none. Of a database in memory it ends with the process. Raises OSError."""
    match place:
        case MemoryPlace():
            return secrets.token_bytes(_BYTES)
        case FilePlace():
            return _read_or_make(place.path.with_name(f"{place.path.name}.seal-key"))
        case _:
            return _read_or_make(data_folder() / _NAME)


def _read_or_make(path: Path) -> bytes:
    """Written beside its place and linked into it, so that of two processes both get the one that came first."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(secrets.token_bytes(_BYTES))
            with suppress(FileExistsError):  # another process was first
                os.link(fresh, path)
        finally:
            fresh.unlink()
    return path.read_bytes()
