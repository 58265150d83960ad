"""Whatever stands in the place of a schema, the engine goes on: it is a 400 with its place, or an answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases.tiny_model import write_model
from tests.e2e.schemas import SCHEMAS
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYWORDS = [
    "type", "properties", "required", "items", "prefixItems", "additionalProperties", "patternProperties", "enum",
    "const", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "minimum", "maximum", "exclusiveMinimum", "multipleOf",
    "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties", "x-guidance",
]  # fmt: skip
WORDS = [
    "string", "integer", "number", "boolean", "null", "array", "object", "^a+$", "(", "#", "#/$defs/a", "date", "é", "",
]  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(-10, 10) | st.sampled_from(WORDS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=4)
    ),
    max_leaves=12,
)
PATHS = ("response_format", "tools", "guided_json")


@st.composite
def bent(draw: st.DrawFn) -> Any:
    """A schema that is right but for one place in it."""
    document = json.loads(json.dumps(draw(st.sampled_from(list(SCHEMAS.values())))))
    at = document
    while True:
        inside = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = draw(st.sampled_from(inside)) if inside else None
        if key is None or not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
            break
        at = at[key]
    if key is not None:
        at[key] = draw(VALUES)
    return document


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("tiny")
    template = folder / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    row = f'{{source: "{write_model(folder / "model", window=4096)}", chat_template: "{template}"}}'
    text = f"version: 1\nproviders:\n  local: {{threads: 1, kv_cache: {{memory: 8MiB}}, models: {{tiny: {row}}}}}\n"
    async with serving(text) as url:
        yield f"{url}/v1/chat/completions"


def bodies(schema: Any) -> list[dict[str, Any]]:
    """The same schema in three places."""
    base: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 6}
    function = {"name": "f", "parameters": schema, "strict": True}
    return [
        {**base, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
        {**base, "tools": [{"type": "function", "function": function}], "tool_choice": "required"},
        {**base, "guided_json": schema},
    ]


async def check(url: str, schema: Any) -> None:
    async with aiohttp.ClientSession() as session:
        for body, field in zip(bodies(schema), PATHS, strict=True):
            async with session.post(url, json=body) as answer:
                found = await answer.json()
            assert answer.status in (200, 400), (found, schema)
            if answer.status == 400:
                assert found["error"]["param"].startswith(field), found
        async with session.post(url, json={**bodies({})[0], "response_format": None, "max_tokens": 1}) as healthy:
            assert healthy.status == 200


def run_on(loop: asyncio.AbstractEventLoop, url: str, schema: Any) -> None:
    asyncio.run_coroutine_threadsafe(check(url, schema), loop).result(60)


@pytest.mark.parametrize("times", [40, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("schemas", [VALUES, bent()], ids=["anything", "bent"])
async def test_nothing_in_the_place_of_a_schema_harms_the_engine(
    url: str, times: int, schemas: st.SearchStrategy[Any]
) -> None:
    loop = asyncio.get_running_loop()

    @settings(max_examples=times, database=None, suppress_health_check=list(HealthCheck))
    @given(schemas)
    def fuzz(schema: Any) -> None:
        run_on(loop, url, schema)

    await asyncio.to_thread(fuzz)
