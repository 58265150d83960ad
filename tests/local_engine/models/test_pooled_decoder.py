"""Decoders as embedding models: the vectors of transformers, each text as if it were alone."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from local_engine.config import EngineConfig
from local_engine.encoder_engine import EncoderEngine
from local_engine.encoding import EncoderInput, Rows
from local_engine.errors import ModelLoadError
from local_engine.loading.encoder import load_encoder, model_kind
from tests.local_engine.tiny_encoders import write_layout
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf

TEXTS = tuple(
    EncoderInput(ids) for ids in ((3, 17, 99), (120,), (9,), (3, 17, 99), tuple(range(20, 50)), (44, 9, 81, 60))
)

# transformers' model types, with what their tiny models need beside the usual numbers.
KINDS: dict[str, dict[str, int]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {},
    "gemma3_text": {},
    "phi3": {"pad_token_id": 0},
    "smollm3": {"pad_token_id": 0},
    "mixtral": {},
    "qwen3_moe": {"head_dim": 8},
    "gpt_oss": {},
}


def encode(path: Path, inputs: Sequence[EncoderInput], *, alone: bool = False) -> Rows:
    async def run() -> Rows:
        engine = EncoderEngine(load_encoder(path, EngineConfig(block_size=4)), EngineConfig(max_batch_tokens=200))
        try:
            if alone:
                return np.concatenate([await engine.encode([each]) for each in inputs])
            return await engine.encode(inputs)
        finally:
            await engine.aclose()

    return asyncio.run(run())


def expected(oracle: Oracle, inputs: Sequence[EncoderInput], *, mean: bool) -> torch.Tensor:
    rows = []
    with torch.inference_mode():
        for each in inputs:
            hidden = oracle.model.model(torch.tensor([each.token_ids])).last_hidden_state[0]
            rows.append(hidden.mean(0) if mean else hidden[-1])
    return F.normalize(torch.stack(rows), dim=-1)


def check(path: Path, wanted: torch.Tensor) -> None:
    assert model_kind(path) == "embedding"
    together = encode(path, TEXTS)
    torch.testing.assert_close(torch.from_numpy(together), wanted, atol=2e-5, rtol=1e-4)
    assert np.array_equal(together, encode(path, TEXTS, alone=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["lasttoken", "mean_tokens"])
def test_a_model_saved_without_its_head_gives_the_vectors_of_transformers(kind: str, mode: str, tmp_path: Path) -> None:
    oracle = tiny_oracle(kind=kind, **KINDS[kind])
    oracle.model.model.save_pretrained(tmp_path)
    write_layout(tmp_path, mode)
    check(tmp_path, expected(oracle, TEXTS, mean=mode == "mean_tokens"))


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_saved_with_its_head_and_a_layout_does_so_too(tied: bool, tmp_path: Path) -> None:
    oracle = tiny_oracle(kind="qwen3", tie_word_embeddings=tied)
    oracle.model.save_pretrained(tmp_path)
    assert model_kind(tmp_path) == "generation"
    write_layout(tmp_path, "lasttoken")
    check(tmp_path, expected(oracle, TEXTS, mean=False))


@pytest.mark.parametrize(("number", "mean"), [(1, True), (3, False)])
def test_a_gguf_that_names_a_pooling_is_an_embedding_model(number: int, mean: bool, tmp_path: Path) -> None:
    oracle = tiny_oracle(kind="qwen3")
    assert model_kind(write_gguf(oracle, tmp_path / "plain.gguf")) == "generation"
    path = write_gguf(oracle, tmp_path / "model.gguf", numbers={"qwen3.pooling_type": number})
    check(path, expected(oracle, TEXTS, mean=mean))


@pytest.mark.parametrize("length", [512, 513, 514, 1025])
def test_a_text_of_several_chunks_is_the_same_alone_and_beside_others(length: int, tmp_path: Path) -> None:
    oracle = tiny_oracle(max_position_embeddings=2048)
    oracle.model.model.save_pretrained(tmp_path)
    long = EncoderInput(tuple(token % 120 for token in range(length)))
    other = EncoderInput(tuple(token % 77 for token in range(700)))
    config = EngineConfig(block_size=16, max_batch_tokens=2000)
    model = load_encoder(tmp_path, config)
    with torch.inference_mode():
        together = model.rows([other, long, EncoderInput((5,))])
        alone = model.rows([long])
    torch.testing.assert_close(alone, expected(oracle, [long], mean=False), atol=2e-5, rtol=1e-4)
    assert torch.equal(together[1], alone[0])


@pytest.mark.parametrize(
    ("values", "word"), [({"is_causal": False}, "is_causal"), ({"use_bidirectional_attention": True}, "both ways")]
)
def test_a_decoder_that_looks_both_ways_is_refused(values: dict[str, bool], word: str, tmp_path: Path) -> None:
    oracle = tiny_oracle()
    oracle.model.model.config.update(values)
    oracle.model.model.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=word):
        load_encoder(tmp_path, EngineConfig())


def test_a_decoder_that_ranks_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(kind="qwen3"), tmp_path / "model.gguf", numbers={"qwen3.pooling_type": 4})
    with pytest.raises(ModelLoadError, match="qwen3"):
        load_encoder(path, EngineConfig())


def test_the_window_is_what_the_operator_says_or_8192_tokens(tmp_path: Path) -> None:
    oracle = tiny_oracle(max_position_embeddings=32768)
    oracle.model.model.save_pretrained(tmp_path)
    assert load_encoder(tmp_path, EngineConfig()).info.max_tokens == 8192
    assert load_encoder(tmp_path, EngineConfig(max_context=9000)).info.max_tokens == 9000


def test_in_bfloat16_the_vectors_are_nearly_the_same(tmp_path: Path) -> None:
    oracle = tiny_oracle(kind="qwen3")
    oracle.model.model.save_pretrained(tmp_path)
    model = load_encoder(tmp_path, EngineConfig(dtype="bfloat16"))
    with torch.inference_mode():
        rows = model.rows(TEXTS)
    assert rows.dtype == torch.float32
    assert (rows * expected(oracle, TEXTS, mean=False)).sum(-1).min() > 0.99
