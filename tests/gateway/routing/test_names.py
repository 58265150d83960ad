"""How a name becomes a target, and that model lists are fetched rarely and never for aliases and prefixes."""

from collections.abc import Mapping, Sequence

import pytest

from adapters.canonical.errors import ContextOverflow, ModelNotFound, UpstreamUnreachable
from gateway.routing.names import LIST_TTL_S, ModelLists, Names, ProviderRules
from gateway.routing.route import Route, Shadow
from providers.base import Capabilities, ModelEntry
from providers.testing.scripted import ScriptedProvider


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class CountingProvider(ScriptedProvider):
    """Counts how often its list is asked for."""

    lists = 0

    async def models(self) -> Sequence[ModelEntry]:
        self.lists += 1
        return await super().models()


def provider(name: str, *models: str, adapters: bool = False, error: Exception | None = None) -> CountingProvider:
    fields = frozenset({"adapter"}) if adapters else frozenset[str]()
    entries = [ModelEntry(id=model) for model in models]
    return CountingProvider(name, models=entries, capabilities=Capabilities(fields=fields), models_error=error)


def names_of(
    *providers: CountingProvider, clock: Clock | None = None, aliases: Mapping[str, str] | None = None
) -> Names:
    rules = {each.name: ProviderRules(each) for each in providers}
    routes = {}
    for alias, use in (aliases or {}).items():
        prefix, _, model = use.partition("/")
        routes[alias] = Route((rules[prefix].target(model),))
    return Names(rules, routes, ModelLists({each.name: each for each in providers}, clock or Clock()))


async def target_of(names: Names, name: str) -> tuple[str, str, str | None]:
    (target,) = (await names.resolve(name)).targets
    return target.provider.name, target.model, target.adapter


async def test_an_alias_wins_over_a_provider_prefix() -> None:
    names = names_of(provider("a"), provider("b"), aliases={"a/x": "b/y"})
    assert await target_of(names, "a/x") == ("b", "y", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-5", ("a", "exact", None)),
        ("gpt-5:latest", ("a", "exact", None)),
        ("gpt-4o", ("a", "4o", None)),
        ("gpt-4o-mini", ("b", "small-4o", None)),
        ("gpt-oss:20b", ("a", "oss:20b", None)),
        ("gpt-4o:latest", ("a", "4o", None)),
        ("gpt-", ("b", "org/gpt-", None)),
        ("org/model:8b", ("b", "org/org/model:8b", None)),
        ("a/gpt-4o", ("a", "gpt-4o", None)),
        ("fixed-7", ("a", "one", None)),
    ],
)
async def test_exact_names_go_before_prefixes_these_before_stars_and_long_stars_before_short(
    name: str, expected: tuple[str, str, str | None]
) -> None:
    one = provider("a", "gpt-4o")
    aliases = {"*": "b/org/*", "gpt-*": "a/*", "gpt-*-mini": "b/small-*", "gpt-5": "a/exact", "fixed-*": "a/one"}
    names = names_of(one, provider("b"), aliases=aliases)
    assert await target_of(names, name) == expected
    assert one.lists == 0
    is_prefixed = name.startswith("a/")
    assert await names.public_name(name) == (name if is_prefixed else name.removesuffix(":latest"))


async def test_a_star_is_part_of_no_name_that_a_client_asks_for() -> None:
    names = names_of(provider("a"), aliases={"gpt-*": "a/*"})
    assert await target_of(names, "gpt-*") == ("a", "*", None)
    assert dict(names.aliases) == {}
    with pytest.raises(ModelNotFound):
        await names.resolve("gpt-")


async def test_all_targets_of_a_name_with_a_star_are_filled_and_made_once() -> None:
    a, b = ProviderRules(provider("a")), ProviderRules(provider("b"))
    wild = Route(
        (a.target("x-*"), b.target("fixed")),
        on_failure=(b.target("*"),),
        detours={ContextOverflow: (a.target("*-long"),)},
        shadow=Shadow(b.target("new/*"), 0.5),
    )
    names = Names({"a": a, "b": b}, {"my-*": wild}, ModelLists({}, Clock()))
    route = await names.resolve("my-m")
    assert [target.label for target in (*route.targets, *route.on_failure)] == ["a/x-m", "b/fixed", "b/m"]
    assert route.detours is not None
    assert route.shadow is not None
    assert [route.detours[ContextOverflow][0].label, route.shadow.target.label] == ["a/m-long", "b/new/m"]
    assert await names.resolve("my-m") is route


async def test_a_prefix_takes_any_name_and_fetches_no_list() -> None:
    one = provider("one", error=UpstreamUnreachable("down"))
    names = names_of(one)
    assert await target_of(names, "one/org/model:8b") == ("one", "org/model:8b", None)
    assert one.lists == 0


async def test_an_alias_fetches_no_list() -> None:
    one = provider("one", "m")
    names = names_of(one, aliases={"fast": "one/m"})
    await names.resolve("fast")
    assert one.lists == 0


async def test_a_bare_name_with_slashes_and_colons_finds_its_only_provider() -> None:
    names = names_of(provider("one", "other"), provider("two", "org/model:8b"))
    assert await target_of(names, "org/model:8b") == ("two", "org/model:8b", None)


async def test_a_bare_name_of_two_providers_is_refused_and_names_neither() -> None:
    names = names_of(provider("secretive", "m"), provider("hidden", "m"))
    with pytest.raises(ModelNotFound, match="more than one provider") as caught:
        await names.resolve("m")
    assert "secretive" not in caught.value.message
    assert "hidden" not in caught.value.message


async def test_an_unknown_name_is_a_404_that_names_it_and_lists_nothing() -> None:
    names = names_of(provider("one", "private-model"), aliases={"fast": "one/private-model"})
    with pytest.raises(ModelNotFound, match="'nope'") as caught:
        await names.resolve("nope")
    assert "private-model" not in caught.value.message
    assert caught.value.status == 404


async def test_a_name_with_an_adapter_is_split_where_the_provider_takes_adapters() -> None:
    names = names_of(provider("local", "base", "base:sql", adapters=True))
    assert await target_of(names, "local/base:sql") == ("local", "base", "sql")
    assert await target_of(names, "base:sql") == ("local", "base", "sql")


async def test_a_wrong_adapter_never_becomes_the_base_model() -> None:
    names = names_of(provider("local", "base", "base:sql", adapters=True))
    assert await target_of(names, "base:sql-exprt") == ("local", "base", "sql-exprt")


async def test_the_tag_latest_is_the_model_itself_unless_something_has_that_name() -> None:
    names = names_of(
        provider("local", "base", "sql", "sql:latest", adapters=True),
        provider("ollama", "llama3"),
        aliases={"fast": "local/base", "slow:latest": "local/sql"},
    )
    assert await target_of(names, "base:latest") == ("local", "base", None)
    assert await target_of(names, "local/base:latest") == ("local", "base", None)
    assert await target_of(names, "sql:latest") == ("local", "sql", "latest")
    assert await target_of(names, "fast:latest") == ("local", "base", None)
    assert await target_of(names, "slow:latest") == ("local", "sql", None)
    assert await target_of(names, "ollama/llama3:latest") == ("ollama", "llama3:latest", None)
    assert await names.public_name("fast:latest") == "fast"


async def test_a_colon_is_part_of_the_name_where_the_provider_takes_no_adapters() -> None:
    names = names_of(provider("ollama", "llama3:8b", "llama3"))
    assert await target_of(names, "ollama/llama3:8b") == ("ollama", "llama3:8b", None)


async def test_a_provider_whose_list_fails_does_not_hide_the_others() -> None:
    names = names_of(provider("down", error=UpstreamUnreachable("down")), provider("up", "m"))
    assert await target_of(names, "m") == ("up", "m", None)


async def test_a_list_is_fetched_once_until_it_is_old() -> None:
    clock = Clock()
    one = provider("one", "m")
    names = names_of(one, clock=clock)
    await names.resolve("m")
    await names.resolve("m")
    assert one.lists == 1
    clock.seconds = LIST_TTL_S + 1
    await names.resolve("m")
    assert one.lists == 2


async def test_a_failed_list_is_not_asked_for_again_at_once() -> None:
    one = provider("one", error=UpstreamUnreachable("down"))
    names = names_of(one)
    for _ in range(3):
        with pytest.raises(ModelNotFound):
            await names.resolve("m")
    assert one.lists == 1


async def test_a_provider_with_a_huge_list_is_remembered_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.routing.names.MAX_LISTED", 2)
    lists = ModelLists({"one": provider("one", "a", "b", "c")}, Clock())
    assert list(await lists.of("one") or ()) == ["a", "b"]
