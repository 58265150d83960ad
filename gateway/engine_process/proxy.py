"""Stands for a provider that runs in another process. What that process was doing when it ends fails, and may be tried
again; then it is connected to anew."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import GatewayError, ModelNotFound, NotReady, UpstreamUnreachable
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from gateway.engine_process.host import GO_ON, HOLD, STREAM, TRACED_STREAM
from gateway.engine_process.messages import Frame, read_frame, write_frame
from providers.abilities import AdapterFolder, AdapterName, Measure, ModelLoad
from providers.base import Batch, Capabilities, ModelEntry, Readiness, ReadinessState
from providers.trace_context import PHASES, Phase

__all__ = ["EngineProxy"]

_PAUSE_S = 0.2
"""Between two tries to connect."""
_PAUSE_AT, _RESUME_AT = 128, 32
"""Batches of one stream that wait for its reader when the host is asked to hold it, and to go on. The others of the
connection go on all the time."""
_STARTING = Readiness(ReadinessState.LOADING, "the engine's process is starting")
_ANYTHING = Capabilities(fields=EXPRESSIBLE_FIELDS, prompts=True)
_K = TypeVar("_K")


class EngineProxy:
    """Satisfies `Provider` and the abilities of a local one. `first_token_s`: what a request waits for a connection."""

    def __init__(self, name: str, path: Path, *, first_token_s: float) -> None:
        self._name = name
        self._path = path
        self._first_token_s = first_token_s
        self._state: Mapping[str, object] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._calls: dict[int, asyncio.Queue[Frame]] = {}
        self._held: set[int] = set()
        self._last = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        self._task = asyncio.create_task(self._stay_connected())

    def capabilities(self, model: str) -> Capabilities:
        return self._of("capabilities", model, _ANYTHING)

    def readiness(self, model: str) -> Readiness:
        if not self._connected.is_set():
            return _STARTING
        known = cast("Mapping[str, Readiness]", self._state["readiness"])
        if model not in known:
            raise ModelNotFound(f"the model '{model}' does not exist, or you have no access to it", param="model")
        return known[model]

    async def models(self) -> Sequence[ModelEntry]:
        await self._wait()
        return cast("Sequence[ModelEntry]", self._state["models"])

    def measures(self) -> Sequence[Measure]:
        return cast("Sequence[Measure]", self._state.get("measures", ()))

    def embedding_fields(self, model: str) -> frozenset[str]:
        return self._of("embedding", model, frozenset())

    def rerank_fields(self, model: str) -> frozenset[str]:
        return self._of("rerank", model, frozenset())

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        return cast("EmbeddingResult", await self._ask("embed", request))

    async def rerank(self, request: RerankRequest) -> RerankResult:
        return cast("RerankResult", await self._ask("rerank", request))

    async def count_tokens(self, request: Request) -> Sequence[int]:
        return cast("Sequence[int]", await self._ask("count_tokens", request))

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return cast("Tokens", await self._ask("tokenize", request))

    async def detokenize(self, request: DetokenizeRequest) -> str:
        return cast("str", await self._ask("detokenize", request))

    async def load_model(self, asked: ModelLoad) -> None:
        await self._ask("load_model", asked)

    async def unload_model(self, model: str) -> None:
        await self._ask("unload_model", model)

    async def load_adapter(self, adapter: AdapterFolder) -> None:
        await self._ask("load_adapter", adapter)

    async def unload_adapter(self, adapter: AdapterName) -> None:
        await self._ask("unload_adapter", adapter)

    async def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        record = PHASES.get()
        number, frames = await self._begin(STREAM if record is None else TRACED_STREAM, request)
        try:
            while True:
                kind, _, value = await frames.get()
                if number in self._held and frames.qsize() <= _RESUME_AT:
                    self._held.discard(number)
                    self._tell(GO_ON, number)
                if kind == "phase":
                    if record is not None:
                        record(*cast("tuple[Phase, float, float]", value))
                    continue
                if kind == "error":
                    raise cast("GatewayError", value)
                if kind == "end":
                    return
                yield cast("Batch", value)
        finally:
            self._end(number)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._lost()

    async def _ask(self, kind: str, value: object) -> object:
        number, frames = await self._begin(kind, value)
        try:
            answer, _, found = await frames.get()
            if answer == "error":
                raise cast("GatewayError", found)
            return found
        finally:
            self._end(number)

    async def _begin(self, kind: str, value: object) -> tuple[int, asyncio.Queue[Frame]]:
        await self._wait()
        if self._writer is None:
            raise self._gone()
        self._last += 1
        frames = self._calls[self._last] = asyncio.Queue()
        write_frame(self._writer, (kind, self._last, value))
        return self._last, frames

    def _end(self, number: int) -> None:
        self._calls.pop(number, None)
        self._held.discard(number)
        self._tell("cancel", number)

    def _tell(self, what: str, number: int) -> None:
        if self._writer is not None:
            write_frame(self._writer, (what, number, None))

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._first_token_s):
                await self._connected.wait()
        except TimeoutError as error:
            raise NotReady(f"{self._name}: the engine's process does not answer", retry_after_s=1) from error

    async def _stay_connected(self) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                await self._read(reader)
            except (OSError, asyncio.IncompleteReadError):
                await self._lost()
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            frame = await read_frame(reader)
            if frame[0] == "state":
                self._state = cast("Mapping[str, object]", frame[2])
                self._connected.set()
            elif (frames := self._calls.get(frame[1])) is not None:
                frames.put_nowait(frame)
                if frames.qsize() >= _PAUSE_AT and frame[1] not in self._held:
                    self._held.add(frame[1])
                    self._tell(HOLD, frame[1])

    async def _lost(self) -> None:
        """Whatever waits is told."""
        self._connected.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._held.clear()
        for number, frames in list(self._calls.items()):
            frames.put_nowait(("error", number, self._gone()))

    def _gone(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(f"{self._name}: the engine's process has ended, and is started again")

    def _of(self, what: str, model: str, default: _K) -> _K:
        known = cast("Mapping[str, _K]", self._state.get(what, {}))
        return known.get(model, default)
