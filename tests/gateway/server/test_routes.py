"""Paths to routes: those that are written out, and those that hold a model's name."""

import pytest

from gateway.http.answer import Answer, Reply
from gateway.server.exchange import Exchange
from gateway.server.routes import Route, Routes


async def nothing(exchange: Exchange) -> Reply:
    return Answer()


PATHS = (
    "/v1/chat",
    "/v1/models",
    "/v1/models/*",
    "/v1/models/*:generate",
    "/v1/models/*:stream",
    "/v1/models/*:stream?alt=sse",
    "/v1beta/models/*:generate",
)
TABLE = {path: Route({path: nothing}) for path in PATHS}
ROUTES = Routes(TABLE)


@pytest.mark.parametrize(
    ("path", "query", "key", "name"),
    [
        ("/v1/chat", "", "/v1/chat", None),
        ("/v1/models", "a=b", "/v1/models", None),
        ("/v1/models/m", "", "/v1/models/*", "m"),
        ("/v1/models/org/m", "", "/v1/models/*", "org/m"),
        ("/v1/models/org%2Fm", "", "/v1/models/*", "org/m"),
        ("/v1/models/llama3:8b", "", "/v1/models/*", "llama3:8b"),
        ("/v1/models/llama3:8b:generate", "", "/v1/models/*:generate", "llama3:8b"),
        ("/v1/models/m:generate", "alt=sse", "/v1/models/*:generate", "m"),
        ("/v1/models/m:stream", "", "/v1/models/*:stream", "m"),
        ("/v1/models/m:stream", "alt=json", "/v1/models/*:stream", "m"),
        ("/v1/models/m:stream", "key=x&alt=sse", "/v1/models/*:stream?alt=sse", "m"),
        ("/v1/models/:generate", "", "/v1/models/*", ":generate"),
        ("/v1beta/models/m:generate", "", "/v1beta/models/*:generate", "m"),
        ("/v1beta/org/m:generate", "", "/v1beta/models/*:generate", "org/m"),
        ("/v1beta/org/m", "", None, None),
        ("/v1beta1/publishers/google/models/m:generate", "", "/v1beta/models/*:generate", "m"),
        ("/v1/projects/p/locations/l/publishers/google/models/a%2Fm:generate", "", "/v1beta/models/*:generate", "a/m"),
        ("/v1beta1/projects/p/locations/l/publishers/org/models/m:generate", "", "/v1beta/models/*:generate", "org/m"),
        ("/v1beta1/projects/p/publishers/google/models/m:generate", "", None, None),
        ("/v1/models/", "", None, None),
        ("/v1/models/*", "", "/v1/models/*", "*"),
        ("/v2/models/m", "", None, None),
        ("", "", None, None),
    ],
)
def test_a_path_leads_to_its_route_and_the_name_in_it(path: str, query: str, key: str | None, name: str | None) -> None:
    assert ROUTES.find(path, query) == (None if key is None else TABLE[key], name)


def test_a_name_where_only_verbs_are_known_leads_nowhere() -> None:
    assert ROUTES.find("/v1beta/models/m", "")[0] is None
    assert ROUTES.find("/v1beta/models/m:other", "")[0] is None


def test_telemetry_counts_a_route_without_its_query() -> None:
    assert route_label("/v1/models/m:stream", "alt=sse") == "/v1/models/*:stream"
    assert route_label("/v1/chat", "") == "/v1/chat"


def route_label(path: str, query: str) -> str:
    found, _ = ROUTES.find(path, query)
    assert found is not None
    return found.label


def test_only_what_is_written_out_may_be_logged_as_it_is() -> None:
    assert ROUTES.is_written_out("/v1/chat")
    assert not ROUTES.is_written_out("/v1/models/*")


BENEATH = Routes(TABLE, "/llm", bare={"/health": Route({"/health": nothing})})


@pytest.mark.parametrize(
    ("path", "key", "name"),
    [
        ("/llm/v1/chat", "/v1/chat", None),
        ("/llm/v1/models/org/m:generate", "/v1/models/*:generate", "org/m"),
        ("/llm/v1beta1/publishers/google/models/m:generate", "/v1beta/models/*:generate", "m"),
        ("/health", "/health", None),
        ("/llm", None, None),
        ("/v1/chat", None, None),
        ("/v1/models/m", None, None),
        ("/llmv1/models/m", None, None),
        ("/llm/llm/v1/chat", None, None),
        ("/LLM/v1/chat", None, None),
    ],
)
def test_everything_stands_beneath_a_prefix_but_what_is_bare(path: str, key: str | None, name: str | None) -> None:
    route, found = BENEATH.find(path, "")
    assert (None if route is None else [*route.methods]) == (None if key is None else [key])
    if key is not None:
        assert found == name


def test_a_path_without_the_prefix_meant_the_one_with_it() -> None:
    assert BENEATH.nearest("/v1/chat") == BENEATH.nearest("/chat") == "/llm/v1/chat"
