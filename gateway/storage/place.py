"""Where the database is: `storage.url` of run.yaml, or a SQLite file in the user's data folder.

Imports no database code, so that a gateway that keeps nothing starts without it.
"""

import os
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "NEWEST_SCHEMA",
    "FilePlace",
    "MemoryPlace",
    "Place",
    "SchemaMismatch",
    "ServerPlace",
    "check_schema",
    "check_schema_of_file",
    "data_folder",
    "from_folder",
    "parse_place",
]

NEWEST_SCHEMA = "0004"
"""The revision that this version reads and writes; the newest one under `gateway.storage.migrations`."""

_VERSIONS = "alembic_version"
_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")
_FILE = "gateway.db"


class SchemaMismatch(ValueError):
    """The database is of another version."""


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """A database in this process, gone with it."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A SQLite file."""

    path: Path


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A PostgreSQL database. `url` holds the password."""

    url: str


Place = MemoryPlace | FilePlace | ServerPlace


def parse_place(url: str | None, environ: Mapping[str, str] = os.environ) -> Place:
    """Raises ValueError for what is no place."""
    if url is None:
        return FilePlace(data_folder(environ) / _FILE)
    if url == "memory":
        return MemoryPlace()
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return FilePlace(Path(url[len(_SQLITE) :]).expanduser())
    for start in _POSTGRESQL:
        if url.startswith(start) and len(url) > len(start):
            return ServerPlace(f"postgresql+psycopg://{url[len(start) :]}")
    raise ValueError("expected sqlite:///FILE, postgresql://..., or memory")


def from_folder(url: str, folder: Path) -> str:
    """The same place, where a relative SQLite file is one of this folder."""
    file = url.removeprefix(_SQLITE)
    return url if file in ("", url) else f"{_SQLITE}{os.path.abspath(folder / Path(file).expanduser())}"


def check_schema(found: str | None) -> None:
    """Raises SchemaMismatch, with the command to run. `found` is the database's revision, None for an empty one."""
    if found == NEWEST_SCHEMA:
        return
    if found is None:
        raise SchemaMismatch("the database has no tables yet; run 'gateway migrate'")
    if found < NEWEST_SCHEMA:
        raise SchemaMismatch(f"the database is of an older version ({found}); run 'gateway migrate'")
    raise SchemaMismatch(f"the database is of a newer version ({found}); this gateway knows {NEWEST_SCHEMA}")


def check_schema_of_file(path: Path) -> None:
    """The same for a SQLite file, where there is one; a missing or empty file is made at first use."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            tables = {row[0] for row in database.execute("select name from sqlite_master where type = 'table'")}
            if not tables:
                return
            rows = list(database.execute("select version_num from alembic_version")) if _VERSIONS in tables else []
    except sqlite3.Error as error:
        raise SchemaMismatch(f"{path} can't be read as a database: {error}") from error
    if not rows:
        raise SchemaMismatch(f"{path} is the database of another program")
    check_schema(str(rows[0][0]))


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this program keeps what must last: $LLM_GATEWAY_DATA, else `llm-gateway` in the user's data folder."""
    if own := environ.get("LLM_GATEWAY_DATA"):
        return Path(own).expanduser()
    if xdg := environ.get("XDG_DATA_HOME"):
        return Path(xdg) / "llm-gateway"
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "llm-gateway"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "llm-gateway"
    return Path.home() / ".local" / "share" / "llm-gateway"
