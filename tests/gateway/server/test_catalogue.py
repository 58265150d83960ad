"""What is told of models of this machine, before and after they are loaded."""

import json
from collections.abc import Sequence

from adapters.canonical.model_memory import ModelMemory
from adapters.gemini.model_list import GeminiModelList
from adapters.ollama.model_list import RunningModels
from adapters.openai.model_list import OpenAIModelList
from gateway.keys.client_key import Account, ClientKey
from gateway.routing.names import LOCAL_TTL_S, ModelLists, Names, ProviderRules
from gateway.routing.route import Route, Target
from gateway.server.catalogue import Catalogue
from providers.base import Capabilities, ModelEntry, Readiness, ReadinessState
from providers.testing.scripted import ScriptedProvider

ONE = ("other", "gpt-5", "gpt-small-5")
LATER = Readiness(ReadinessState.READY, "loaded on demand")
LOADING = Readiness(ReadinessState.LOADING, "still loading")
THERE = Readiness(ReadinessState.READY, memory=ModelMemory(size=9, vram=4, expires_at=1_800_000_000.5))


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


async def test_what_a_model_takes_of_memory_and_until_when_is_told() -> None:
    told = Told(at_start=True)
    for memory, expected in (
        (THERE.memory, (9, 4, "2027-01-15T08:00:00Z")),
        (ModelMemory(size=9), (9, 0, "2318-12-31T00:00:00Z")),
    ):
        told.provider.state = Readiness(ReadinessState.READY, memory=memory)
        (model,) = json.loads(await told.catalogue.list_loaded(None, RunningModels()))["models"]
        assert (model["size"], model["size_vram"], model["expires_at"]) == expected


async def test_only_what_loads_at_start_holds_up_readiness() -> None:
    for at_start, obstacles in ((True, ["local/m: still loading"]), (False, [])):
        told = Told(at_start=at_start)
        told.provider.state = LOADING
        assert told.catalogue.obstacles() == obstacles


async def test_a_model_that_is_loaded_for_a_request_holds_up_nothing() -> None:
    told = Told(at_start=True)
    told.provider.state = Readiness(ReadinessState.LOADING, "still loading", on_demand=True)
    assert told.catalogue.obstacles() == []


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


async def listed_by_gemini(provider: ScriptedProvider) -> dict[str, list[str]]:
    lists = ModelLists({"p": provider}, lambda: 0.0)
    aliases = {"alias": Route((Target(provider, "told"),))}
    names = Names({"p": ProviderRules(provider)}, aliases, lists)
    catalogue = Catalogue(names, lists, {"p": provider}, local={}, started_at=0)
    rows = json.loads(await catalogue.list_models(None, GeminiModelList()))["models"]
    return {row["name"].removeprefix("models/"): row["supportedGenerationMethods"] for row in rows}


GENERATING, EMBEDDING = ["generateContent", "countTokens"], ["embedContent"]


async def test_a_list_offers_of_each_model_what_it_can_do() -> None:
    names = ("gpt-5", "text-embedding-3-small", "all-minilm-l6-v2", "BAAI/bge-m3", "bge-reranker-v2-m3", "rage-e5x")
    said = ModelEntry(id="told", abilities=frozenset(("embed",)))
    both = ModelEntry(id="embed-and-chat", abilities=frozenset(("generate", "embed")))
    found = await listed_by_gemini(ScriptedProvider("p", models=[said, both, *(ModelEntry(id=name) for name in names)]))
    assert found == {
        "alias": EMBEDDING,
        "p/told": EMBEDDING,
        "p/embed-and-chat": [*GENERATING, *EMBEDDING],
        "p/gpt-5": GENERATING,
        "p/text-embedding-3-small": EMBEDDING,
        "p/all-minilm-l6-v2": EMBEDDING,
        "p/BAAI/bge-m3": EMBEDDING,
        "p/bge-reranker-v2-m3": [],
        "p/rage-e5x": GENERATING,
    }


async def test_a_model_that_takes_neither_messages_nor_prompts_is_not_offered_for_generation() -> None:
    none = Capabilities(fields=frozenset(), messages=False, prompts=False)
    found = await listed_by_gemini(ScriptedProvider("p", models=[ModelEntry(id="m")], capabilities=none))
    assert found["p/m"] == EMBEDDING


async def test_names_behind_a_star_are_listed_as_far_as_their_targets_list_what_it_may_be() -> None:
    one = ScriptedProvider("one", models=[ModelEntry(id=model, context=n) for n, model in enumerate(ONE)])
    two = ScriptedProvider("two", models=[ModelEntry(id="large")])
    rules = {each.name: ProviderRules(each) for each in (one, two)}
    aliases = {
        "mine": Route((rules["one"].target("gpt-5"),)),
        "my-*": Route((rules["one"].target("gpt-*"),)),
        "my-small-*": Route((rules["two"].target("fixed"),)),
        "any-*": Route((rules["two"].target("*"),)),
    }
    lists = ModelLists({"one": one, "two": two}, lambda: 0.0)
    catalogue = Catalogue(Names(rules, aliases, lists), lists, {"one": one, "two": two}, local={}, started_at=0)
    listed = json.loads(await catalogue.list_models(None, OpenAIModelList()))["data"]
    assert [row["id"] for row in listed] == [
        "mine",
        *(f"one/{model}" for model in ONE),
        "two/large",
        "my-5",
        "any-large",
    ]
    assert [listed[-2][name] for name in ("context_window", "max_model_len", "context_length")] == [1, 1, 1]
    key = ClientKey("k", Account(models=("my-*",)))
    listed = json.loads(await catalogue.list_models(key, OpenAIModelList()))["data"]
    assert [row["id"] for row in listed] == ["my-5"]
    shown = json.loads(await catalogue.show_model("my-5", key, OpenAIModelList()))
    assert (shown["id"], shown["context_window"]) == ("my-5", 1)
