"""Embedding models and cross-encoders of this machine, from texts to vectors and scores."""

import json
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.errors import ContextOverflow, InvalidRequest, NotReady, UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Prompt, Request, TemplateOptions
from adapters.canonical.rerank import RerankRequest
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest
from local_engine.encoding import EncoderInput
from providers.abilities import Embedder, Reranker, TokenCounter, Tokenizer
from providers.base import ProviderSettings, ReadinessState
from providers.local.provider import LocalProvider
from tests.cases.tiny_model import write_model
from tests.providers.local.tiny_encoder import CLS, SEP, WORDS, write_encoder

RED_CAR = (CLS, 4, 7, SEP)


@asynccontextmanager
async def serving(path: Path, **more: object) -> AsyncIterator[LocalProvider]:
    models = {"m": {"source": str(path), "load": "on_demand", **more}}
    provider = LocalProvider(
        ProviderSettings(name="local", type="local", options={"models": models, "device": "cpu", "threads": 1})
    )
    try:
        yield provider
    finally:
        await provider.aclose()


def asked(*inputs: Prompt, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(model="m", dialect="d", inputs=inputs, **fields)


def ranked(query: str, *documents: str, **fields: Any) -> RerankRequest:
    return RerankRequest(model="m", dialect="d", query=query, documents=documents, **fields)


def numbers(vectors: Sequence[bytes]) -> list[list[float]]:
    return [array("f", vector).tolist() for vector in vectors]


async def test_the_provider_has_these_abilities(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        assert isinstance(provider, Embedder)
        assert isinstance(provider, Reranker)
        assert isinstance(provider, TokenCounter)
        assert isinstance(provider, Tokenizer)


async def test_texts_and_token_ids_become_the_models_vectors(tmp_path: Path) -> None:
    oracle = write_encoder(tmp_path)
    async with serving(tmp_path) as provider:
        result = await provider.embed(asked("red car", RED_CAR, "Unknown house runs ."))
    wanted = [
        F.normalize(oracle.hidden(ids).mean(0), dim=0) for ids in (RED_CAR, RED_CAR, (CLS, 10, 11, 8, 9, 12, SEP))
    ]
    torch.testing.assert_close(torch.tensor(numbers(result.vectors)), torch.stack(wanted), atol=2e-6, rtol=1e-5)
    assert result.usage is not None
    assert result.usage.prompt_tokens == 4 + 4 + 7


@pytest.mark.parametrize("weights", ["int8", "int4"])
async def test_packed_weights_are_refused_by_name(weights: str, tmp_path: Path) -> None:
    write_encoder(tmp_path)
    async with serving(tmp_path, weights=weights) as provider:
        with pytest.raises(NotReady, match=rf"models\.m\.weights: {weights} is for models that generate"):
            await provider.embed(asked("red"))


@pytest.mark.parametrize("text", ["red " * 50, (4,) * 41])
async def test_a_text_that_is_too_long_is_refused_with_both_numbers(text: Prompt, tmp_path: Path) -> None:
    write_encoder(tmp_path)
    async with serving(tmp_path) as provider:
        with pytest.raises(ContextOverflow, match=r"input: a text of \d+ tokens; the model takes 40") as caught:
            await provider.embed(asked("red", text))
    assert caught.value.param == "input"


async def test_a_text_that_is_too_long_is_cut_where_that_is_asked_for_special_tokens_kept(tmp_path: Path) -> None:
    write_encoder(tmp_path, max_tokens=6)
    async with serving(tmp_path) as provider:
        whole = await provider.embed(asked("red green blue car"))
        cut = await provider.embed(asked("red green blue car house runs", truncate_prompt_tokens=-1))
        shorter = await provider.embed(asked("red green blue car", truncate_prompt_tokens=4))
        four = await provider.embed(asked("red green", tuple(range(4, 12)), truncate_prompt_tokens=4))
        unsaid = await provider.embed(asked("red green blue car house runs", cut_is_default=True))
    assert cut.vectors == unsaid.vectors == whole.vectors
    assert shorter.vectors[0] == four.vectors[0]
    assert four.usage is not None
    assert four.usage.prompt_tokens == 8


@pytest.mark.parametrize("trained", [False, True])
async def test_dimensions_are_for_models_that_were_trained_for_them(trained: bool, tmp_path: Path) -> None:
    write_encoder(tmp_path, is_matryoshka=trained)
    async with serving(tmp_path) as provider:
        if not trained:
            with pytest.raises(InvalidRequest, match="dimensions") as caught:
                await provider.embed(asked("red", dimensions=8))
            assert caught.value.param == "dimensions"
        else:
            (vector,) = numbers((await provider.embed(asked("red", dimensions=8))).vectors)
            assert len(vector) == 8
            assert sum(number * number for number in vector) == pytest.approx(1)


async def test_ids_that_the_model_lacks_and_empty_inputs_are_refused(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    async with serving(tmp_path) as provider:
        for bad in ((len(WORDS),), ()):
            with pytest.raises(InvalidRequest, match="item 0") as caught:
                await provider.embed(asked(bad))
            assert caught.value.param == "input"


async def test_an_embedding_model_ranks_by_nearness_and_gives_the_best_that_were_asked_for(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    documents = ("green house", "red car", "blue")
    async with serving(tmp_path) as provider:
        result = await provider.rerank(ranked("red car", *documents))
        two = await provider.rerank(ranked("red car", *documents, top_n=2))
    assert result.scores[0].index == 1
    assert result.scores[0].score == pytest.approx(1)
    assert [each.score for each in result.scores] == sorted((each.score for each in result.scores), reverse=True)
    assert two.scores == result.scores[:2]
    assert all(-1 <= each.score <= 1 for each in result.scores)
    assert result.usage is not None
    assert result.usage.prompt_tokens == 4 + 4 + 4 + 3


async def test_a_document_is_as_near_alone_as_among_others_bit_for_bit(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    documents = [f"{first} {second}" for first in ("red", "green", "blue") for second in ("car", "house", "runs")]
    async with serving(tmp_path) as provider:
        together = await provider.rerank(ranked("red house", *documents))
        for each in together.scores:
            alone = await provider.rerank(ranked("red house", documents[each.index]))
            assert alone.scores[0].score == each.score


async def test_a_cross_encoder_scores_query_and_document_together(tmp_path: Path) -> None:
    oracle = write_encoder(tmp_path, scores=True)
    async with serving(tmp_path) as provider:
        result = await provider.rerank(ranked("red", "car", "blue house"))
        cut = await provider.rerank(ranked("red", "car house runs", truncate_prompt_tokens=5))
        with pytest.raises(UnsupportedParameter, match="no embeddings"):
            await provider.embed(asked("red"))
    pairs = [
        EncoderInput((CLS, 4, SEP, 7, SEP), (0, 0, 0, 1, 1)),
        EncoderInput((CLS, 4, SEP, 6, 8, SEP), (0,) * 3 + (1,) * 3),
    ]
    wanted = [float(torch.sigmoid(torch.tensor(oracle.logit(pair)))) for pair in pairs]
    scores = {each.index: each.score for each in result.scores}
    assert [scores[0], scores[1]] == pytest.approx(wanted, rel=1e-5)
    assert cut.scores[0].score == scores[0]


async def test_what_does_not_fit_a_pair_is_refused_by_the_documents_name(tmp_path: Path) -> None:
    write_encoder(tmp_path, scores=True)
    async with serving(tmp_path) as provider:
        with pytest.raises(ContextOverflow, match="documents") as caught:
            await provider.rerank(ranked("red", "car", "blue " * 60))
    assert caught.value.param == "documents"


async def test_an_encoder_does_not_generate_and_says_so_before_and_after_it_is_loaded(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    chat = Request(model="m", dialect="d", messages=(Message(role=USER, parts=(Text(text="hi"),)),))
    async with serving(tmp_path) as provider:
        with pytest.raises(UnsupportedParameter, match="does not generate text"):
            _ = [batch async for batch in provider.stream(chat)]
        assert not provider.capabilities("m").messages
        assert not provider.capabilities("m").prompts
        assert (await provider.models())[0].context == 40
        assert (await provider.models())[0].abilities == frozenset(("embed", "rank"))
        assert provider.readiness("m").state is ReadinessState.READY
        assert provider.engine_stats("m") is None
        await provider.embed(asked("red"))
        stats = provider.encoder_stats("m")
    assert stats is not None
    assert (stats.finished, stats.tokens) == (1, 3)


async def test_a_model_that_generates_gives_no_embeddings_and_ranks_nothing(tmp_path: Path) -> None:
    write_model(tmp_path)
    async with serving(tmp_path) as provider:
        with pytest.raises(UnsupportedParameter, match="generates text and gives no embeddings"):
            await provider.embed(asked("red"))
        with pytest.raises(UnsupportedParameter, match="generates text and does not rank"):
            await provider.rerank(ranked("red", "car"))


async def test_an_encoder_with_adapters_is_not_loaded(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    async with serving(tmp_path, adapters={"a": str(tmp_path)}) as provider:
        with pytest.raises(NotReady, match="adapters"):
            await provider.embed(asked("red"))


async def test_tokens_of_an_encoder_are_told_and_read_back(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    prompt = Request(model="m", dialect="d", prompts=("unknown car",))
    bare = Request(model="m", dialect="d", prompts=("red",), template=TemplateOptions(add_special_tokens=False))
    chat = Request(model="m", dialect="d", messages=(Message(role=USER, parts=(Text(text="hi"),)),))
    async with serving(tmp_path) as provider:
        tokens = await provider.tokenize(TokenizeRequest(request=prompt, with_texts=True))
        assert tokens.ids == (CLS, 10, 11, 7, SEP)
        assert tokens.texts is not None
        assert (len(tokens.texts), tokens.texts[0], tokens.context) == (5, "[CLS]", 40)
        assert (await provider.tokenize(TokenizeRequest(request=bare))).ids == (4,)
        assert await provider.count_tokens(prompt) == (5,)
        text = await provider.detokenize(DetokenizeRequest(model="m", ids=tokens.ids))
        assert text == "[CLS] un ##known car [SEP]"
        with pytest.raises(InvalidRequest, match=r"tokens\[1\]"):
            await provider.detokenize(DetokenizeRequest(model="m", ids=(4, len(WORDS))))
        with pytest.raises(UnsupportedParameter):
            await provider.tokenize(TokenizeRequest(request=chat))


async def test_tokens_of_a_model_that_generates_are_told_and_read_back(tmp_path: Path) -> None:
    write_model(tmp_path)
    prompt = Request(model="m", dialect="d", prompts=("Grüße",))
    async with serving(tmp_path) as provider:
        tokens = await provider.tokenize(TokenizeRequest(request=prompt, with_texts=True))
        assert tokens.texts is not None
        assert len(tokens.texts) == len(tokens.ids) == 7
        assert tokens.texts[2] == "�"
        assert await provider.detokenize(DetokenizeRequest(model="m", ids=tokens.ids)) == "Grüße"


async def test_the_prompt_that_a_folder_names_goes_before_every_text(tmp_path: Path) -> None:
    write_encoder(tmp_path / "plain")
    write_encoder(tmp_path / "prompted")
    prompts = {"prompts": {"query": "red ", "document": ""}, "default_prompt_name": "query"}
    (tmp_path / "prompted" / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    async with serving(tmp_path / "plain") as provider:
        plain = await provider.embed(asked("red car", RED_CAR))
    async with serving(tmp_path / "prompted") as provider:
        prompted = await provider.embed(asked("car", RED_CAR))
    assert prompted.vectors == plain.vectors
