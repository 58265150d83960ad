"""The exact cache: the same request of the same tenant gets the same answer again, as a stream or whole.

The key is a digest of the whole canonical request, type by type, less what says how the answer is delivered; of the
client's key; and of what run.yaml says about models. Only answers that came whole are kept.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from adapters.canonical.events import Started, UsageReported
from adapters.canonical.request import Request
from gateway.cache.stored_answer import VERSION, decode_answer, encode_answer
from gateway.cache.stores import Store
from gateway.routing.eligibility import TAGS_HEADER
from gateway.routing.progress import Progress
from providers.base import Batch

__all__ = ["ExactCache"]

_MAX_ANSWER = 4 * 2**20
"""Of encoded bytes; a longer answer is not kept."""
_MAX_EVENTS = 100_000


class ExactCache:
    """`fingerprint` stands for everything in run.yaml that answers depend on; `headers` are those of a request that
    steer it, by their names."""

    def __init__(self, store: Store, fingerprint: bytes, headers: Collection[str] = ()) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._headers = sorted({TAGS_HEADER, *headers})

    async def stream(
        self, request: Request, progress: Progress, answer: Callable[[], AsyncGenerator[Batch, None]]
    ) -> AsyncGenerator[Batch, None]:
        """The stored answer's batches, or those of `answer`, which are then stored.

        A client says `Cache-Control: no-store` to keep out of it, `no-cache` to have a fresh answer stored.
        """
        wish = progress.headers.get("cache-control", "").lower()
        if "no-store" in wish:
            async with aclosing(answer()) as batches:
                async for batch in batches:
                    yield batch
            return
        key = self._key(request, progress)
        found = None if "no-cache" in wish else await self._found(key)
        if found is not None:
            progress.cache = "hit"
            again, progress.dropped = found
            for batch in again:
                _note_usage(batch, progress)
                yield batch
            return
        progress.cache = "miss"
        kept: list[Batch] | None = []
        count = 0
        async with aclosing(answer()) as batches:
            async for batch in batches:
                if kept is not None:
                    kept.append(_without_request_id(batch))
                    count += len(batch)
                    kept = kept if count <= _MAX_EVENTS else None
                yield batch
        if kept:
            data = encode_answer(kept, progress.dropped)
            if len(data) <= _MAX_ANSWER:
                await self._store.put(key, data)

    async def aclose(self) -> None:
        await self._store.aclose()

    def _key(self, request: Request, progress: Progress) -> bytes:
        plain = replace(
            request,
            stream=False,
            include_usage=False,
            continuous_usage=False,
            request_id=None,
            session_id=None,
            message_paths=None,
            tool_paths=None,
            mirrored={},
        )
        steering = [progress.headers.get(name) for name in self._headers]
        asked = (VERSION, progress.key, steering, plain)
        return sha256(self._fingerprint + repr(asked).encode("utf-8", "surrogatepass")).digest()

    async def _found(self, key: bytes) -> tuple[list[Batch], tuple[str, ...]] | None:
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            return decode_answer(data)
        except (msgspec.MsgspecError, KeyError):
            return None  # of another version, or broken: as good as none


def _note_usage(batch: Batch, progress: Progress) -> None:
    for event in batch:
        if type(event) is UsageReported:
            progress.counted = event.usage


def _without_request_id(batch: Batch) -> Batch:
    """The id is of the call that was made, which a later answer was not."""
    return [replace(event, request_id=None) if type(event) is Started else event for event in batch]
