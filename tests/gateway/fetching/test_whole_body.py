from collections.abc import AsyncIterator

import pytest

from gateway.fetching.whole_body import BodyTooLong, whole_body


async def test_a_body_is_whole_up_to_its_bound_and_no_further_piece_is_taken_behind_it() -> None:
    taken: list[bytes] = []

    async def arriving() -> AsyncIterator[bytes]:
        for piece in (b"ab", b"", b"cd", b"ef"):
            taken.append(piece)
            yield piece

    assert await whole_body(arriving(), 6) == b"abcdef"
    taken.clear()
    with pytest.raises(BodyTooLong):
        await whole_body(arriving(), 3)
    assert taken == [b"ab", b"", b"cd"]
