"""The real Gemma 3 270M, a base model in four bits, behind the real gateway: it continues text."""

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
import pytest_asyncio

from providers.local.model_source import fetch
from tests.serving import serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "gemma3-270m"


@pytest.fixture(scope="module")
def model_path() -> Path:
    """Fetched once a machine, into the user's cache."""
    return fetch(MODEL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    text = f"version: 1\nproviders:\n  local: {{type: local, model: {MODEL}}}\n"
    async with (
        serving(text) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=500) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("prompt", "continued"),
    [
        ("1, 2, 3, 4,", " 5, 6, 7, 8, 9,"),
        ("Once upon a time", ", there was a little girl named"),
        ("Monday, Tuesday, Wednesday,", " Thursday, Friday, Saturday"),
    ],
)
async def test_it_continues_text_with_sense(client: openai.AsyncOpenAI, prompt: str, continued: str) -> None:
    answer = await client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=24)
    assert answer.choices[0].text.startswith(continued)


async def test_behind_a_prompt_longer_than_the_window_it_still_reads_the_beginning(client: openai.AsyncOpenAI) -> None:
    """Its local layers see 512 tokens; every sixth layer sees all."""
    filler = "The weather was fine, and the birds were singing in the trees by the river. " * 45
    prompt = f"The secret code is 7402. {filler}\nThe secret code is"
    answer = await client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=8)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 600
    assert answer.choices[0].text.strip().startswith("7402")
