"""The local models that are in memory, and those on their way there or out of it: loaded one at a time, each once.

Knows no files and no engine: it is given a blocking function that makes a model.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace as with_fields

from adapters.canonical.errors import GatewayError, NotReady
from local_engine.errors import EngineError
from providers.base import Readiness, ReadinessState
from providers.local.gguf_tokenizer import TokenizerError
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel
from providers.local.model_download import FetchError
from providers.local.shown_paths import without_folders

__all__ = ["AnyModel", "ModelLoads"]

AnyModel = LocalModel | LocalEncoder

_logger = logging.getLogger(__name__)

_EXPECTED = (GatewayError, EngineError, TokenizerError, FetchError, OSError, MemoryError)
"""What a model that cannot be served is told by; each message is one clear line. Anything else is a defect of ours."""
_AGAIN_S = 10.0
_NEVER_IDLE: Mapping[str, float | None] = MappingProxyType({})


@dataclass(slots=True)
class _Slot:
    """What is known of one model.

    `on_demand`: its last load was for a request. `was_there`: a load has gone well. `failure` is what clients are told,
    `failed_at` when a load failed that may go well another time, in the loop's time. `users` are the requests that have
    the model or wait for it, `used_at` when one last began or ended, in Unix seconds. `stays_s`: how long the model is
    kept without one; None: for ever.
    """

    stays_s: float | None
    task: "asyncio.Task[AnyModel | None] | None" = None
    on_demand: bool = False
    was_there: bool = False
    failure: str | None = None
    failed_at: float | None = None
    users: int = 0
    used_at: float = 0.0
    expiry: asyncio.TimerHandle | None = None

    @property
    def model(self) -> AnyModel | None:
        """The model, if it is there now."""
        return self.task.result() if self.task is not None and self.task.done() and not self.task.cancelled() else None

    def stop_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class ModelLoads:
    """`load` blocks and runs in a thread. A request waits `wait_s` seconds at most for a model that is loading.

    A model leaves memory `idle_s` seconds after its last request (None, or one that is not named: never), or as soon as
    another needs its place, where `most` of them may be there: then that goes which was asked for longest ago, of those
    without a request. The next request loads it again.

    A model whose engine stopped by itself is loaded again: at once, or `again_s` seconds after a load that did not last
    so long. Requests wait for it as for the first load.

    What could not be fetched is tried again, beside the first request after `again_s` seconds: the network may be back;
    so is what was in memory before: there may be room again. Until that has gone well requests hear of the failure at
    once.

    The log says where files lie; clients are told the model's name, and the last names of paths. `folders` are those
    that messages may name.
    """

    def __init__(
        self,
        load: Callable[[str], AnyModel],
        *,
        wait_s: float,
        again_s: float = _AGAIN_S,
        idle_s: Mapping[str, float | None] = _NEVER_IDLE,
        most: int | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        self._load = load
        self._folders = folders
        self._wait_s = wait_s
        self._again_s = again_s
        self._idle_s = idle_s
        self._most = most
        self._slots: dict[str, _Slot] = {}
        self._turn = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        """Of the models that are on their way out of memory."""
        self._rested = asyncio.Event()
        """A model has no request any more."""
        self._closing = asyncio.Event()

    def begin(self, name: str, *, on_demand: bool = False) -> "asyncio.Task[AnyModel | None]":
        """Starts the load, unless it was started before and what came of it stands. `on_demand`: for a request."""
        slot = self._slot(name)
        if slot.failed_at is not None and asyncio.get_running_loop().time() - slot.failed_at >= self._again_s:
            slot.failed_at = slot.task = None
        if slot.task is None:
            slot.on_demand = on_demand
            return self._start(name, slot)
        return slot.task

    @asynccontextmanager
    async def using(self, name: str, stays_s: float | None = None) -> AsyncGenerator[AnyModel, None]:
        """The model, which is there for as long as the block lasts, and `stays_s` seconds longer (below 0: for ever;
        None: as was said before). Raises NotReady when it failed or takes too long."""
        slot = self._slot(name)
        slot.stop_expiry()
        slot.users += 1
        slot.used_at = time.time()
        if stays_s is not None:
            slot.stays_s = None if stays_s < 0 else stays_s
        try:
            yield await self._ready(name, slot)
        finally:
            slot.users -= 1
            slot.used_at = time.time()
            self._rest(name, slot)

    async def unload(self, name: str) -> None:
        """Lets the model go, and waits for it; or has it go at the end of the last request that has it."""
        slot = self._slot(name)
        if slot.task is not None and slot.failure is None:
            slot.stays_s = 0
            self._rest(name, slot)
            await self._gone()

    def readiness(self, name: str) -> Readiness:
        slot = self._slot(name)
        if slot.failure is not None:
            return Readiness(ReadinessState.FAILED, slot.failure)
        if slot.task is None:
            return Readiness(ReadinessState.READY, "loaded on demand")
        model = slot.model
        if model is None:
            return Readiness(ReadinessState.LOADING, "still loading", on_demand=slot.on_demand)
        expires_at = None if slot.stays_s is None else slot.used_at + slot.stays_s
        return Readiness(ReadinessState.READY, memory=with_fields(model.memory, expires_at=expires_at))

    def loaded(self, name: str) -> AnyModel | None:
        """The model, if it is there now."""
        return self._slot(name).model

    async def aclose(self) -> None:
        """Waits for a load that runs (a thread cannot be stopped) and closes the engines."""
        self._closing.set()
        self._rested.set()
        await asyncio.gather(*[slot.task for slot in self._slots.values() if slot.task is not None])
        for name, slot in self._slots.items():
            self._leave(name, slot)
        await asyncio.gather(*self._leaving)

    def _slot(self, name: str) -> _Slot:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot(self._idle_s.get(name))
        return slot

    async def _ready(self, name: str, slot: _Slot) -> AnyModel:
        task = self.begin(name, on_demand=True)
        if not task.done() and slot.failure is None:
            try:
                async with asyncio.timeout(self._wait_s):
                    await asyncio.shield(task)
            except TimeoutError:
                raise NotReady(f"the model '{name}' is still loading", code="model_loading", retry_after_s=5) from None
        model = None if task.cancelled() or not task.done() else task.result()
        if model is None:
            reason = slot.failure or "it was stopped"
            raise NotReady(f"the model '{name}' cannot be served: {reason}", code="model_failed", should_retry=False)
        return model

    def _rest(self, name: str, slot: _Slot) -> None:
        """A model that has no request is let go when its time comes."""
        slot.stop_expiry()
        if slot.users:
            return
        self._rested.set()
        if slot.model is None or self._closing.is_set():
            return
        if slot.stays_s:
            slot.expiry = asyncio.get_running_loop().call_later(slot.stays_s, self._leave, name, slot)
        elif slot.stays_s is not None:
            self._leave(name, slot)

    def _leave(self, name: str, slot: _Slot) -> None:
        """Takes a model out of memory, where it is there."""
        slot.stop_expiry()
        model = slot.model
        if model is None:
            return
        slot.task = None
        slot.stays_s = self._idle_s.get(name)
        leaving = asyncio.create_task(_close(model), name=f"unload {name}")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _start(self, name: str, slot: _Slot, after_s: float = 0.0) -> "asyncio.Task[AnyModel | None]":
        def loaded(task: "asyncio.Task[AnyModel | None]") -> None:
            if slot.task is task:
                slot.used_at = time.time()
                self._rest(name, slot)

        task = slot.task = asyncio.create_task(self._run(name, slot, after_s), name=f"load {name}")
        task.add_done_callback(loaded)
        return task

    def _watch(self, name: str, slot: _Slot, model: LocalModel) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def stopped(why: str) -> None:
            lasted_s = loop.time() - began
            loop.call_soon_threadsafe(
                self._stopped, name, slot, why, 0.0 if lasted_s >= self._again_s else self._again_s
            )

        model.engine.when_failed(stopped)

    def _stopped(self, name: str, slot: _Slot, why: str, after_s: float) -> None:
        """The engine of a model that was loaded stopped by itself."""
        if slot.model is not None and not self._closing.is_set():
            _logger.error("model %s: %s; it is loaded again", name, why)
            slot.on_demand = False
            self._start(name, slot, after_s)

    async def _make_room(self) -> None:
        """Waits until another model may be in memory, and those that have left it are gone."""
        while self._most is not None and not self._closing.is_set():
            there = [(name, slot) for name, slot in self._slots.items() if slot.model is not None]
            if len(there) < self._most:
                break
            resting = [(name, slot) for name, slot in there if not slot.users]
            if resting:
                self._leave(*min(resting, key=lambda each: each[1].used_at))
            else:
                self._rested.clear()
                await self._rested.wait()
        await self._gone()

    async def _gone(self) -> None:
        """Waits for what is leaving memory."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _run(self, name: str, slot: _Slot, after_s: float) -> AnyModel | None:
        if after_s:
            try:
                async with asyncio.timeout(after_s):
                    await self._closing.wait()
            except TimeoutError:
                pass  # it is time
        async with self._turn:
            await self._make_room()
            if self._closing.is_set():
                return None
            try:
                model = await asyncio.to_thread(self._load, name)
                slot.failure, slot.was_there = None, True
                if isinstance(model, LocalModel):
                    self._watch(name, slot, model)
                return model
            except _EXPECTED as error:
                said = str(error) or type(error).__name__
                if isinstance(error, FetchError) or slot.was_there:
                    slot.failed_at = asyncio.get_running_loop().time()
            except Exception as error:  # a broken file may fail a library in any way; the other models serve
                _logger.debug("loading %s failed", name, exc_info=True)
                said = f"{type(error).__name__}: {error}"
            slot.failure = without_folders(said, self._folders)
            slot.stays_s = self._idle_s.get(name)
            _logger.error("model %s failed to load: %s", name, said)
            return None


async def _close(model: AnyModel) -> None:
    """Frees all that the model holds, once its last owner is gone."""
    await model.engine.aclose()
    del model
    await asyncio.to_thread(_give_back)


def _give_back() -> None:
    if "torch" in sys.modules:  # else there was no model of any size
        from local_engine.memory import give_back

        give_back()
