"""Loading local models in the background: one at a time, each once, and what became of it.

Knows no files and no engine: it is given a blocking function that makes a model.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

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


class ModelLoads:
    """`load` blocks and runs in a thread. A request waits `wait_s` seconds at most for a model that is loading.

    A model whose engine stopped by itself is loaded again: at once, or `again_s` seconds after a load that did not last
    so long. Requests wait for it as for the first load.

    What could not be fetched is tried again, beside the first request after `again_s` seconds: the network may be back.
    Until that has gone well requests hear of the failure at once.

    The log says where files lie; clients are told the model's name, and the last names of paths. `folders` are those
    that messages may name.
    """

    def __init__(
        self,
        load: Callable[[str], AnyModel],
        *,
        wait_s: float,
        again_s: float = _AGAIN_S,
        folders: Sequence[str] = (),
    ) -> None:
        self._load = load
        self._folders = folders
        self._wait_s = wait_s
        self._again_s = again_s
        self._unfetched: dict[str, float] = {}
        """When each of them was found out, in the loop's time."""
        self._tasks: dict[str, asyncio.Task[AnyModel | None]] = {}
        self._failures: dict[str, str] = {}
        """What clients are told."""
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()

    def begin(self, name: str) -> "asyncio.Task[AnyModel | None]":
        """Starts the load, unless it was started before and what came of it stands."""
        task = self._tasks.get(name)
        failed = self._unfetched.get(name)
        if failed is not None and asyncio.get_running_loop().time() - failed >= self._again_s:
            del self._unfetched[name]
            task = None
        return self._start(name) if task is None else task

    async def ready(self, name: str) -> AnyModel:
        """The model. Raises NotReady when it failed or takes too long."""
        task = self.begin(name)
        if not task.done() and name not in self._failures:
            try:
                async with asyncio.timeout(self._wait_s):
                    await asyncio.shield(task)
            except TimeoutError:
                raise NotReady(f"the model '{name}' is still loading", code="model_loading", retry_after_s=5) from None
        model = None if task.cancelled() or not task.done() else task.result()
        if model is None:
            reason = self._failures.get(name, "it was stopped")
            raise NotReady(f"the model '{name}' cannot be served: {reason}", code="model_failed", should_retry=False)
        return model

    def readiness(self, name: str) -> Readiness:
        task = self._tasks.get(name)
        if name in self._failures:
            return Readiness(ReadinessState.FAILED, self._failures[name])
        if task is None:
            return Readiness(ReadinessState.READY, "loaded on demand", in_memory=False)
        if not task.done():
            return Readiness(ReadinessState.LOADING, "still loading")
        return Readiness(ReadinessState.READY)

    def loaded(self, name: str) -> AnyModel | None:
        """The model, if it is there now."""
        task = self._tasks.get(name)
        return task.result() if task is not None and task.done() and not task.cancelled() else None

    async def aclose(self) -> None:
        """Waits for a load that runs (a thread cannot be stopped) and closes the engines."""
        self._closing.set()
        for model in await asyncio.gather(*self._tasks.values()):
            if model is not None:
                await model.engine.aclose()

    def _start(self, name: str, after_s: float = 0.0) -> "asyncio.Task[AnyModel | None]":
        task = self._tasks[name] = asyncio.create_task(self._run(name, after_s), name=f"load {name}")
        return task

    def _watch(self, name: str, model: LocalModel) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def stopped(why: str) -> None:
            lasted_s = loop.time() - began
            loop.call_soon_threadsafe(self._stopped, name, why, 0.0 if lasted_s >= self._again_s else self._again_s)

        model.engine.when_failed(stopped)

    def _stopped(self, name: str, why: str, after_s: float) -> None:
        """The engine of a model that was loaded stopped by itself."""
        if not self._closing.is_set():
            _logger.error("model %s: %s; it is loaded again", name, why)
            self._start(name, after_s)

    async def _run(self, name: str, after_s: float) -> AnyModel | None:
        if after_s:
            try:
                async with asyncio.timeout(after_s):
                    await self._closing.wait()
            except TimeoutError:
                pass  # it is time
        async with self._turn:
            if self._closing.is_set():
                return None
            try:
                model = await asyncio.to_thread(self._load, name)
                self._failures.pop(name, None)
                if isinstance(model, LocalModel):
                    self._watch(name, model)
                return model
            except _EXPECTED as error:
                said = str(error) or type(error).__name__
                if isinstance(error, FetchError):
                    self._unfetched[name] = asyncio.get_running_loop().time()
            except Exception as error:  # a broken file may fail a library in any way; the other models serve
                _logger.debug("loading %s failed", name, exc_info=True)
                said = f"{type(error).__name__}: {error}"
            self._failures[name] = without_folders(said, self._folders)
            _logger.error("model %s failed to load: %s", name, said)
            return None
