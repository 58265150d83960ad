"""Moments as several dialects write them (`2026-11-30T12:00:00Z`), and as Unix seconds."""

from datetime import UTC, datetime

__all__ = ["timestamp", "unix_seconds"]


def timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def unix_seconds(written: str | None) -> int | None:
    """None for what is no moment."""
    try:
        return None if written is None else int(datetime.fromisoformat(written).timestamp())
    except ValueError:
        return None
