"""What is told of models of this machine, before and after they are loaded."""

import json
from collections.abc import Sequence

from adapters.ollama.model_list import RunningModels
from adapters.openai.model_list import OpenAIModelList
from gateway.routing.names import LOCAL_TTL_S, ModelLists, Names, ProviderRules
from gateway.server.catalogue import Catalogue
from providers.base import ModelEntry, Readiness, ReadinessState
from providers.testing.scripted import ScriptedProvider

LATER = Readiness(ReadinessState.READY, "loaded on demand", in_memory=False)
LOADING = Readiness(ReadinessState.LOADING, "still loading")
THERE = Readiness(ReadinessState.READY)


class Loads(ScriptedProvider):
    """A provider whose one model is in the state that a test says, and tells its window once it is in memory."""

    state = LATER

    def readiness(self, model: str) -> Readiness:
        return self.state

    async def models(self) -> Sequence[ModelEntry]:
        return [ModelEntry(id="m", context=2048 if self.state is THERE else None)]


class Told:
    """The catalogue of a machine with `local/m`, at `seconds`."""

    def __init__(self, *, at_start: bool) -> None:
        self.seconds = 0.0
        self.provider = Loads("local", models=[ModelEntry(id="m")])
        lists = ModelLists({"local": self.provider}, lambda: self.seconds, local={"local"})
        names = Names({"local": ProviderRules(self.provider)}, {}, lists)
        local = {("local", "m"): at_start}
        self.catalogue = Catalogue(names, lists, {"local": self.provider}, local=local, started_at=0)

    async def running(self) -> list[str]:
        told = json.loads(await self.catalogue.list_loaded(None, RunningModels()))
        return [model["name"] for model in told["models"]]


async def test_a_model_that_loads_on_demand_is_running_once_it_is_loaded() -> None:
    told = Told(at_start=False)
    assert await told.running() == []
    told.provider.state = LOADING
    assert await told.running() == []
    told.provider.state = THERE
    assert await told.running() == ["local/m"]


async def test_only_what_loads_at_start_holds_up_readiness() -> None:
    for at_start, obstacles in ((True, ["local/m: still loading"]), (False, [])):
        told = Told(at_start=at_start)
        told.provider.state = LOADING
        assert told.catalogue.obstacles() == obstacles


async def test_the_window_of_a_model_is_told_soon_after_it_is_loaded() -> None:
    told = Told(at_start=False)

    async def window() -> object:
        return json.loads(await told.catalogue.list_models(None, OpenAIModelList()))["data"][0].get("context_window")

    assert await window() is None
    told.provider.state = THERE
    told.seconds = LOCAL_TTL_S + 0.1
    assert await window() == 2048


async def test_whether_a_model_is_loading_is_known_by_every_name_of_it() -> None:
    told = Told(at_start=True)
    for state, loading in ((LATER, False), (LOADING, True), (THERE, False)):
        told.provider.state = state
        assert await told.catalogue.is_loading("local/m") is loading
        assert await told.catalogue.is_loading("m") is loading
    assert not await told.catalogue.is_loading("other")
