"""Background answers without a server: a router over one scripted provider, and a database in memory."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.parse import read_body
from adapters.openai.responses.sealing import Sealer
from gateway.config.sections.tools import Fetch, Tools
from gateway.responses.background import Background
from gateway.responses.prepared import Preparation
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.router import Progress, Router, RoutingRules
from gateway.storage.bounds import Bounds
from gateway.storage.place import MemoryPlace
from gateway.storage.records import KeptResponse
from gateway.storage.storage import Storage
from gateway.tools.answers import ToolAnswers
from gateway.tools.tool_servers import ToolServers
from providers.testing.scripted import ScriptedProvider

__all__ = ["Bench"]


@dataclass(frozen=True)
class Limits:
    parallel: int
    queue: int


@dataclass
class Bench:
    """`ids` are those of all that was accepted."""

    provider: ScriptedProvider
    background: Background
    storage: Storage
    preparation: Preparation
    ids: list[str] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    @classmethod
    async def open(cls, provider: ScriptedProvider, *, parallel: int, queue: int) -> "Bench":
        lists = ModelLists({provider.name: provider}, lambda: 0.0)
        names = Names({provider.name: ProviderRules(provider)}, {}, lists)
        router = Router(names, RoutingRules(attempts=1), random=lambda: 1.0)
        servers = ToolServers(Tools(), Fetch(), clock=time.monotonic, lost=lambda name, why: None)
        answers = ToolAnswers(router, servers, clock=time.monotonic, redact=str, total_s=600.0)
        bounds = Bounds(1e9, 1 << 30)
        storage = Storage(
            MemoryPlace(), bounds, time.time, when_open=lambda stores: background.recover(stores), report=print
        )
        bench = cls(provider, None, storage, Preparation(storage, time.time))  # type: ignore[arg-type]
        background = bench.background = Background(
            storage, answers, Limits(parallel, queue), bench, worker="w", redact=str, now=time.time
        )
        await storage.stores()
        return bench

    def fault(self, error: BaseException, *, request_id: str) -> None:
        self.faults.append(error)

    async def submit(self) -> str:
        """Raises what `Background.submit` raises."""
        front = ResponsesFront(Sealer("k", b"secret"), time.time)
        body = {"model": f"{self.provider.name}/m", "input": "hi", "background": True}
        response_id = f"resp_{len(self.ids) + 1:024x}"
        asked = read_body(json.dumps(body).encode(), max_depth=64)
        prepared = await self.preparation.prepare(asked, front, owner="", response_id=response_id)
        await self.background.submit(prepared, Progress())
        self.ids.append(response_id)
        return response_id

    async def find(self, response_id: str) -> KeptResponse | None:
        return await (await self.storage.stores()).responses.find("", response_id)

    async def events(self, response_id: str) -> list[dict[str, Any]]:
        rows = await (await self.storage.stores()).responses.events(response_id, -1, 10_000)
        return [json.loads(row.data) for row in rows]

    async def delete(self, response_id: str) -> None:
        """As the API does it: stopped first."""
        await self.background.cancel(response_id)
        await (await self.storage.stores()).responses.delete("", response_id)

    async def aclose(self) -> None:
        await self.background.aclose()
        await self.storage.aclose()
