"""The gateway that serves now. A reload builds another one from run.yaml and puts it in its place in one step.

Connections belong to the process, not to either: a request goes to the one that serves when it comes, and ends there.
The old one is closed when its last request has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from adapters.canonical.errors import Conflict, GatewayError, InvalidRequest
from gateway.config import Config, ConfigError
from gateway.config.sections.server import Tls
from gateway.http.answer import Answer, Reply
from gateway.http.request import Request
from gateway.server.inheritance import Inheritance
from gateway.server.lifetime import App
from gateway.server.service import Service

__all__ = ["Built", "Live", "fixed_keys"]

Built = Callable[[Config, Inheritance], App]
_FIXED = ("host", "port", "unix", "unix_mode", "admin_port", "workers", "idle_s")


class _Current:
    """Whatever serves now, as one service."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service

    def handle(self, request: Request) -> Awaitable[Reply]:
        return self._service().handle(request)

    def refuse(self, error: GatewayError) -> Answer:
        return self._service().refuse(error)

    def fail(self, fault: BaseException) -> Answer:
        return self._service().fail(fault)


class Live:
    """`load` reads run.yaml and blocks; `build` makes the app for it. `reloaded` is told of each new configuration, and
    may raise ValueError where it cannot work."""

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        build: Built,
        reloaded: Callable[[Config], None] = lambda config: None,
    ) -> None:
        self.app = build(config, Inheritance())
        self._config = config
        self._load = load
        self._build = build
        self._reloaded = reloaded
        self._reloading = asyncio.Lock()
        self._retiring: dict[asyncio.Task[None], App] = {}
        self.main = _Current(lambda: self.app.service)
        self.admin = _Current(lambda: self.app.admin or self.app.service)

    async def reload(self) -> None:
        """Takes the file as it is now. Raises InvalidRequest with every fault of it; what serves then goes on."""
        if self._reloading.locked():
            raise Conflict("a reload is running", code="reload_running")
        async with self._reloading:
            try:
                config = await asyncio.to_thread(self._load)
            except ConfigError as error:
                raise self._failed(str(error)) from error
            changed = fixed_keys(self._config, config)
            if changed:
                raise self._failed(f"{', '.join(changed)}: a change of this needs a restart")
            old = self.app
            try:
                new = self._build(config, old.inheritance(config))
            except (ValueError, ImportError) as error:
                raise self._failed(old.redact(str(error))) from error
            try:
                await new.start(after=old)
                self._reloaded(config)
            except ValueError as error:
                await new.aclose(unless_used_by=old)
                raise self._failed(old.redact(str(error))) from error
            self.app, self._config = new, config
            new.log.write("reloaded", {})
            task = asyncio.create_task(self._retire(old))
            self._retiring[task] = old
            task.add_done_callback(lambda done: self._retiring.pop(done))

    @property
    def running(self) -> int:
        """How many requests are being served, also of what served before."""
        return self.app.running + sum(old.running for old in self._retiring.values())

    async def drain(self, seconds: float) -> None:
        """Ends what serves now, and what still finishes from before."""
        await asyncio.gather(self.app.drain(seconds), *[self._ended(task, seconds) for task in self._retiring])

    async def aclose(self) -> None:
        for task in list(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.app.aclose()

    def _failed(self, why: str) -> InvalidRequest:
        self.app.log.write("reload_failed", {"reason": self.app.log.outside(why)})
        return InvalidRequest(why, code="invalid_configuration")

    async def _retire(self, old: App) -> None:
        """Closes the old one after its last request, which has its own time limit."""
        try:
            await old.finish()
        finally:
            await old.aclose(unless_used_by=self.app)

    async def _ended(self, task: "asyncio.Task[None]", seconds: float) -> None:
        await asyncio.wait({task}, timeout=seconds)


def fixed_keys(old: Config, new: Config) -> Sequence[str]:
    """What differs although it can only be set at start."""
    changed = [f"server.{key}" for key in _FIXED if getattr(old.server, key) != getattr(new.server, key)]
    if _kind_of_tls(old.server.tls) != _kind_of_tls(new.server.tls):
        changed.append("server.tls")
    return changed


def _kind_of_tls(section: Tls | None) -> tuple[bool, bool]:
    """Whether it is spoken, and clients show certificates."""
    return section is not None, section is not None and section.client_ca is not None
