"""The body of an answer as one, and never more of it than a bound."""

from collections.abc import AsyncIterable

__all__ = ["BodyTooLong", "whole_body"]


class BodyTooLong(ValueError):
    """There is more of it than may be."""


async def whole_body(pieces: AsyncIterable[bytes], max_bytes: int) -> bytes:
    """Raises BodyTooLong as soon as that is known."""
    kept: list[bytes] = []
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise BodyTooLong(f"the answer is longer than {max_bytes} bytes")
        kept.append(piece)
    return b"".join(kept)
