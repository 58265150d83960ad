"""The real embedding model behind the real gateway on a real socket, asked with the openai SDK."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import numpy.typing as npt
import openai
import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from providers.local.model_source import fetch
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "all-minilm-l6-v2"
TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Un homme mange du pain – naïve café, 東京!",
    "word " * 150,
]


@dataclass
class Served:
    client: openai.AsyncOpenAI
    url: str
    folder: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    folder = await asyncio.to_thread(fetch, MODEL)  # it lies in the user's cache, so it is fetched once per machine
    text = f"version: 1\nproviders:\n  local: {{type: local, threads: 2, models: {{{MODEL}: {{}}}}}}\n"
    async with (
        serving(text) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=110) as client,
    ):
        yield Served(client, f"{url}/v1", folder)


def reference(folder: Path) -> npt.NDArray[np.float32]:
    """What transformers computes, pooled and normalised as the model's own files say."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = AutoModel.from_pretrained(folder).eval()
    rows = []
    with torch.inference_mode():
        for text in TEXTS:
            hidden = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
            rows.append(torch.nn.functional.normalize(hidden.mean(0), dim=0))
    return torch.stack(rows).numpy()


async def test_its_vectors_and_similarities_are_those_of_the_reference(served: Served) -> None:
    found = await served.client.embeddings.create(model=MODEL, input=TEXTS)
    vectors = np.array([row.embedding for row in found.data], np.float32)
    expected = await asyncio.to_thread(reference, served.folder)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=2e-6)
    assert vectors.shape == (5, 384)
    assert (vectors @ vectors.T)[0, 1] == pytest.approx(0.7553, abs=1e-3)
    assert found.usage.prompt_tokens > 150


async def test_a_text_alone_has_the_vector_that_it_has_beside_others_bit_by_bit(served: Served) -> None:
    together = await served.client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="base64")
    alone = await asyncio.gather(
        *[served.client.embeddings.create(model=MODEL, input=text, encoding_format="base64") for text in TEXTS]
    )
    assert [row.embedding for row in together.data] == [each.data[0].embedding for each in alone]


async def test_it_finds_the_document_that_answers(served: Served) -> None:
    body = {
        "model": MODEL,
        "query": "Who eats bread?",
        "documents": ["The weather is fine.", TEXTS[1], "Stocks fell today."],
        "top_n": 1,
    }
    async with aiohttp.ClientSession() as session, session.post(f"{served.url}/rerank", json=body) as answer:
        (best,) = (await answer.json())["results"]
    assert best["index"] == 1
    assert best["document"]["text"] == TEXTS[1]


async def test_what_it_cannot_do_is_a_clear_400(served: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="does not generate text"):
        await served.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        await served.client.embeddings.create(model=MODEL, input="x", dimensions=100)
    with pytest.raises(openai.BadRequestError, match="input: a text of 302 tokens; the model takes 256") as caught:
        await served.client.embeddings.create(model=MODEL, input="word " * 300)
    assert caught.value.code == "context_length_exceeded"
    cut = await served.client.embeddings.create(
        model=MODEL, input="word " * 300, extra_body={"truncate_prompt_tokens": -1}
    )
    assert cut.usage.prompt_tokens == 256


async def test_the_model_list_names_its_window(served: Served) -> None:
    listed = await served.client.models.list()
    assert [model.id for model in listed.data] == [f"local/{MODEL}"]
