"""Files that a request names by their addresses, for upstreams that take only bytes: fetched before the call.

Nothing here dials: addresses go to the fetcher, by run.yaml's `fetch`. What was fetched stays with the request, for its
other tries and choices.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from msgspec.structs import replace
from yarl import URL

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import Audio, Document, File, Image, MediaSource, Part, ToolResult, Video
from adapters.canonical.request import Request
from adapters.inline_media import resolved
from providers.base import Batch
from providers.choices import StreamCall
from providers.fetching import Fetcher

__all__ = ["MAX_BYTES", "MAX_FILES", "FetchedMedia"]

MAX_FILES: Final = 64
"""Of one request."""
MAX_BYTES: Final = 128 * 2**20
"""Of one request, all files together; those under way when it is passed are the last."""
_AT_ONCE: Final = 8
_UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
_WEB = ("http://", "https://")

Media = Image | Audio | Video | File | Document


class _Found(NamedTuple):
    path: str
    part: Media
    url: str


class FetchedMedia:
    """`kinds` are the parts whose bytes the upstream takes; `keeps` tells of an address that it reads itself. What
    clients of `own_dialect` say in its own words is left alone. `fetcher` None: nothing is fetched, and the dialect
    refuses what it can't say."""

    def __init__(
        self,
        fetcher: Fetcher | None,
        kinds: Sequence[type[Media]],
        *,
        keeps: Callable[[str], bool] | None = None,
        own_dialect: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._fetcher = fetcher
        self._kinds = frozenset(kinds)
        self._keeps = keeps
        self._own_dialect = own_dialect
        self._max_bytes = max_bytes

    def stream(self, call: StreamCall, request: Request) -> AsyncGenerator[Batch, None]:
        """The answer of `call` to the request, with bytes in place of addresses."""
        if self._fetcher is None or request.dialect == self._own_dialect or not request.messages:
            return call(request)
        found = list(self._addresses(request))
        return self._stream(call, request, found, self._fetcher) if found else call(request)

    async def _stream(
        self, call: StreamCall, request: Request, found: Sequence[_Found], fetcher: Fetcher
    ) -> AsyncGenerator[Batch, None]:
        await _fetch(request.fetched, found, fetcher, self._max_bytes)
        async with aclosing(call(self._with_bytes(request))) as batches:
            async for batch in batches:
                yield batch

    def _addresses(self, request: Request) -> Iterator[_Found]:
        for index, message in enumerate(request.messages or ()):
            for place, part in enumerate(message.parts):
                if type(part) in self._kinds or type(part) is ToolResult:
                    yield from self._in_part(part, f"{request.message_path(index)}.content[{place}]")

    def _in_part(self, part: Part, path: str) -> Iterator[_Found]:
        if isinstance(part, ToolResult):
            for place, inner in enumerate(part.parts):
                yield from self._in_part(inner, f"{path}.content[{place}]")
        elif isinstance(part, Media) and (url := self._address(part)) is not None:
            yield _Found(path, part, url)

    def _address(self, part: Media) -> str | None:
        url = None if part.source is None or type(part) not in self._kinds else part.source.url
        if url is None or not url[:8].lower().startswith(_WEB):
            return None
        return None if self._keeps is not None and self._keeps(url) else url

    def _with_bytes(self, request: Request) -> Request:
        fetched = request.fetched
        messages = [
            replace(message, parts=tuple([self._filled(part, fetched) for part in message.parts]))
            for message in request.messages or ()
        ]
        return replace(request, messages=tuple(messages))

    def _filled(self, part: Part, fetched: Mapping[str, MediaSource]) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple([self._filled(inner, fetched) for inner in part.parts]))
        if not isinstance(part, Media) or (url := self._address(part)) is None:
            return part
        if isinstance(part, File) and part.filename is None:
            return replace(part, source=fetched[url], filename=URL(url).name or None)
        return replace(part, source=fetched[url])


async def _fetch(fetched: dict[str, MediaSource], found: Sequence[_Found], fetcher: Fetcher, max_bytes: int) -> None:
    """Adds what is not there yet. Raises InvalidRequest, naming the place of the first that cannot be had."""
    if len(found) > MAX_FILES:
        raise InvalidRequest.at(found[MAX_FILES].path, f"more than {MAX_FILES} files by their addresses")
    limit = asyncio.Semaphore(_AT_ONCE)
    size = 0

    async def fetch(one: _Found) -> None:
        nonlocal size
        async with limit:
            if size > max_bytes:
                raise InvalidRequest.at(one.path, "the files are too large together")
            file = await fetcher.fetch(one.url, param=one.path)
            size += len(file.data)
            data = (await asyncio.to_thread(base64.b64encode, file.data)).decode()
        media_type = None if file.media_type in _UNTYPED else file.media_type
        source = resolved(MediaSource(data=data, media_type=media_type))
        if isinstance(one.part, Image) and not (source.media_type or "image/").startswith("image/"):
            raise InvalidRequest.at(one.path, "what stands at its address is no image")
        fetched[one.url] = source

    missing = {one.url: one for one in found if one.url not in fetched}
    tasks = [asyncio.ensure_future(fetch(one)) for one in missing.values()]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
