"""The images of a request: found in its messages, fetched, and made ready for the model once.

Nothing here dials: addresses go to the fetcher.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import Image, MediaSource, Part, ToolResult
from adapters.canonical.request import Request
from adapters.inline_media import decoded
from providers.fetching import Fetcher
from providers.local.image_input import ImageProcessor, ReadyImage

__all__ = ["MAX_IMAGES", "RequestImages"]

MAX_IMAGES: Final = 64
"""Of one request."""

_READ_AT_ONCE: Final = 8
"""Files of one request that are in memory."""


class _Found(NamedTuple):
    path: str
    source: MediaSource


class RequestImages:
    """Those of one request, however many answers it wants. `fetcher` None: addresses are refused. `workers`: threads
    that decode, which bound what is in memory at once."""

    def __init__(self, request: Request, fetcher: Fetcher | None, workers: Executor) -> None:
        self._found = list(_images_of(request))
        self._fetcher = fetcher
        self._workers = workers
        self._lock = asyncio.Lock()
        self._ready: tuple[ReadyImage, ...] | None = None

    async def ready(self, processor: ImageProcessor | None) -> tuple[ReadyImage, ...]:
        """In the order of the messages; none for a model that reads none, which the template's messages refuse.

        Raises InvalidRequest, naming the place of the first that cannot be had.
        """
        if not self._found or processor is None:
            return ()
        async with self._lock:
            if self._ready is None:
                self._ready = await self._make_ready(processor)
        return self._ready

    async def _make_ready(self, processor: ImageProcessor) -> tuple[ReadyImage, ...]:
        if len(self._found) > MAX_IMAGES:
            raise InvalidRequest.at(self._found[MAX_IMAGES].path, f"more than {MAX_IMAGES} images")
        limit = asyncio.Semaphore(_READ_AT_ONCE)
        run = asyncio.get_running_loop().run_in_executor

        async def ready(found: _Found) -> ReadyImage:
            async with limit:
                return await run(self._workers, processor.ready, await self._bytes_of(found), found.path)

        tasks = [asyncio.ensure_future(ready(found)) for found in self._found]
        try:
            return tuple([await task for task in tasks])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _bytes_of(self, found: _Found) -> bytes:
        source, path = found.source, found.path
        if source.data is not None:
            try:
                return decoded(source.data)
            except InvalidRequest as error:
                raise InvalidRequest.at(path, "its data is not valid base64") from error
        if source.url is None:
            raise UnsupportedParameter.at(path, "this model takes images as data or by their address")
        if self._fetcher is None:
            raise UnsupportedParameter.at(path, "nothing is fetched here; send the image as data")
        return (await self._fetcher.fetch(source.url, param=path)).data


def _images_of(request: Request) -> Iterator[_Found]:
    paths = request.message_paths
    for index, message in enumerate(request.messages or ()):
        path = f"messages[{index}]" if paths is None else paths[index]
        yield from _images_in(message.parts, path)


def _images_in(parts: Sequence[Part], path: str) -> Iterator[_Found]:
    for place, part in enumerate(parts):
        match part:
            case Image():
                yield _Found(f"{path}.content[{place}]", part.source)
            case ToolResult():
                yield from (_Found(f"{path}.content[{place}]", found.source) for found in _images_in(part.parts, path))
