"""The stage of the provider contract for remote providers: the provider, and an upstream that plays scenes."""

from collections.abc import Callable
from typing import Protocol

from adapters.canonical.request import Request
from providers.base import Provider
from providers.testing.contract import Scene
from tests.mock_upstream import Answer, MockUpstream

__all__ = ["WireStage"]


class MakesRequests(Protocol):
    def __call__(self, *, stream: bool) -> Request: ...


class WireStage:
    """A `Stage` of the contract. `answer` is what the upstream says in a scene, in a stream or not."""

    def __init__(
        self,
        upstream: MockUpstream,
        provider: Provider,
        answer: Callable[[Scene, bool], Answer],
        request: MakesRequests,
    ) -> None:
        self.provider = provider
        self._upstream = upstream
        self._answer = answer
        self._request = request
        self._scene = Scene.TEXT
        self._seen = 0

    def set(self, scene: Scene) -> None:
        self._scene = scene
        self._seen = len(self._upstream.requests)

    def request(self, *, stream: bool) -> Request:
        self._upstream.script(self._answer(self._scene, stream))
        return self._request(stream=stream)

    async def reached(self) -> None:
        await self._upstream.seen(self._seen + 1)

    async def freed(self) -> None:
        await self._upstream.idle(within_s=1)
