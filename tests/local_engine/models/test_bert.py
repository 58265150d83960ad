"""Encoders answer as transformers does, from both file formats, and each text as if it were alone."""

import asyncio
import json
from collections.abc import Callable, Sequence
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
from tests.local_engine.tiny_encoders import (
    EncoderOracle,
    tiny_encoder,
    write_bert_gguf,
    write_folder,
    write_layout,
)

TEXTS = tuple(
    EncoderInput(ids)
    for ids in ((5, 17, 60), (9,), (5, 17, 60), tuple(range(3, 33)), (44, 2, 71, 8), (80, 81, 82, 83, 84, 85, 86, 87))
)


def encode(path: Path, inputs: Sequence[EncoderInput], *, alone: bool = False) -> Rows:
    async def run() -> Rows:
        engine = EncoderEngine(load_encoder(path, EngineConfig()), EngineConfig(max_batch_tokens=1000))
        try:
            if alone:
                return np.concatenate([await engine.encode([each]) for each in inputs])
            return await engine.encode(inputs)
        finally:
            await engine.aclose()

    return asyncio.run(run())


def expected(oracle: EncoderOracle, mode: str, *, normalize: bool = True) -> torch.Tensor:
    pools: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "cls_token": lambda rows: rows[0],
        "mean_tokens": lambda rows: rows.mean(0),
        "lasttoken": lambda rows: rows[-1],
    }
    rows = torch.stack([pools[mode](oracle.hidden(each.token_ids)) for each in TEXTS])
    return F.normalize(rows, dim=-1) if normalize else rows


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens", "lasttoken"])
def test_embeddings_are_those_of_transformers_and_the_same_alone_and_in_a_batch(
    kind: str, mode: str, tmp_path: Path
) -> None:
    oracle = tiny_encoder(kind)
    folder = write_folder(oracle, tmp_path / "model")
    write_layout(folder, mode)
    assert model_kind(folder) == "embedding"
    together = encode(folder, TEXTS)
    torch.testing.assert_close(torch.from_numpy(together), expected(oracle, mode), atol=2e-6, rtol=1e-5)
    assert np.array_equal(together, encode(folder, TEXTS, alone=True))


@pytest.mark.parametrize(("number", "mode"), [(1, "mean_tokens"), (2, "cls_token"), (3, "lasttoken")])
@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_a_gguf_gives_the_same_embeddings(kind: str, number: int, mode: str, tmp_path: Path) -> None:
    oracle = tiny_encoder(kind)
    path = write_bert_gguf(oracle, tmp_path / "model.gguf", pooling=number)
    assert model_kind(path) == "embedding"
    torch.testing.assert_close(torch.from_numpy(encode(path, TEXTS)), expected(oracle, mode), atol=2e-6, rtol=1e-5)


def test_without_a_layout_embeddings_are_normalised_means(tmp_path: Path) -> None:
    oracle = tiny_encoder()
    rows = encode(write_folder(oracle, tmp_path / "model"), TEXTS)
    torch.testing.assert_close(torch.from_numpy(rows), expected(oracle, "mean_tokens"), atol=2e-6, rtol=1e-5)


def test_a_layout_decides_the_length_of_texts_and_that_vectors_keep_their_own(tmp_path: Path) -> None:
    oracle = tiny_encoder()
    folder = write_folder(oracle, tmp_path / "model", is_matryoshka=True)
    write_layout(folder, "mean_tokens", normalize=False, max_tokens=31)
    info = load_encoder(folder, EngineConfig()).info
    assert (info.max_tokens, info.normalized, info.can_cut_to(7), info.can_cut_to(33)) == (31, False, True, False)
    torch.testing.assert_close(
        torch.from_numpy(encode(folder, TEXTS)),
        expected(oracle, "mean_tokens", normalize=False),
        atol=2e-6,
        rtol=1e-5,
    )


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
@pytest.mark.parametrize("function", ["Sigmoid", "Identity"])
def test_a_cross_encoder_scores_pairs_as_transformers_does(kind: str, function: str, tmp_path: Path) -> None:
    oracle = tiny_encoder(kind, scores=True)
    named = {"sentence_transformers": {"activation_fn": f"torch.nn.modules.x.{function}"}}
    folder = write_folder(oracle, tmp_path / "model", **named)
    second = 1 if kind == "bert" else 0
    pairs = [
        EncoderInput(ids, (0, 0) + (second,) * (len(ids) - 2)) for ids in ((4, 9, 11, 3), (4, 9, 70), (6, 2, 3, 8))
    ]
    assert model_kind(folder) == "scoring"
    scores = encode(folder, pairs)
    logits = torch.tensor([[oracle.logit(pair)] for pair in pairs])
    wanted = torch.sigmoid(logits) if function == "Sigmoid" else logits
    torch.testing.assert_close(torch.from_numpy(scores), wanted, atol=2e-6, rtol=1e-5)
    assert np.array_equal(scores, encode(folder, pairs, alone=True))


def test_a_gguf_of_a_cross_encoder_scores_the_same(tmp_path: Path) -> None:
    oracle = tiny_encoder("xlm-roberta", scores=True)
    path = write_bert_gguf(oracle, tmp_path / "model.gguf", pooling=4)
    assert model_kind(path) == "scoring"
    wanted = torch.sigmoid(torch.tensor([[oracle.logit(each)] for each in TEXTS]))
    torch.testing.assert_close(torch.from_numpy(encode(path, TEXTS)), wanted, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"architectures": ["DistilBertModel"]}, "DistilBertModel"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"hidden_act": "swish"}, "swish"),
        ({"is_decoder": True}, "is_decoder"),
        ({"num_attention_heads": 5}, "5 heads"),
        ({"num_hidden_layers": 3}, "encoder.layer.2"),
        ({"num_hidden_layers": 1}, "no place"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(more: dict[str, object], word: str, tmp_path: Path) -> None:
    folder = write_folder(tiny_encoder(), tmp_path / "model", **more)
    with pytest.raises(ModelLoadError, match=word):
        load_encoder(folder, EngineConfig())


def test_a_classifier_of_several_labels_is_refused_by_its_tensor(tmp_path: Path) -> None:
    folder = write_folder(tiny_encoder(scores=True, num_labels=3), tmp_path / "model")
    with pytest.raises(ModelLoadError, match="classifier"):
        load_encoder(folder, EngineConfig())


@pytest.mark.parametrize(
    ("modules", "pooling", "word"),
    [
        (
            [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")],
            {"pooling_mode_cls_token": True},
            "Dense",
        ),
        ([("Transformer", "")], {}, "Pooling"),
        ([("Pooling", "../x")], {}, "folder"),
        ([("Pooling", "1_Pooling")], {"pooling_mode_max_tokens": True}, "max_tokens"),
        ([("Pooling", "1_Pooling")], {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "and"),
        ([("Pooling", "1_Pooling")], {"pooling_mode": "weightedmean"}, "weightedmean"),
    ],
)
def test_a_layout_that_is_not_implemented_is_refused_by_name(
    modules: list[tuple[str, str]], pooling: dict[str, object], word: str, tmp_path: Path
) -> None:
    folder = write_folder(tiny_encoder(), tmp_path / "model")
    write_layout(folder, "mean_tokens")
    rows = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ModelLoadError, match=word):
        load_encoder(folder, EngineConfig())


def test_the_newer_name_of_a_pooling_mode_is_read(tmp_path: Path) -> None:
    oracle = tiny_encoder()
    folder = write_folder(oracle, tmp_path / "model")
    write_layout(folder, "mean_tokens")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    rows = encode(folder, TEXTS)
    torch.testing.assert_close(torch.from_numpy(rows), expected(oracle, "cls_token"), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "leave_out", "word"), [(0, "", "pooling_type 0"), (4, "cls.output.weight", "cls.output")]
)
def test_a_gguf_that_cannot_be_served_is_refused_by_name(
    pooling: int, leave_out: str, word: str, tmp_path: Path
) -> None:
    oracle = tiny_encoder("xlm-roberta", scores=pooling == 4)
    path = write_bert_gguf(oracle, tmp_path / "model.gguf", pooling=pooling, leave_out=leave_out)
    with pytest.raises(ModelLoadError, match=word):
        load_encoder(path, EngineConfig())


@pytest.mark.parametrize("scores", [False, True])
def test_in_bfloat16_the_answers_are_nearly_the_same(scores: bool, tmp_path: Path) -> None:
    folder = write_folder(tiny_encoder(scores=scores), tmp_path / "model")
    with torch.inference_mode():
        exact, coarse = (
            load_encoder(folder, EngineConfig(dtype=dtype)).rows(TEXTS) for dtype in ("float32", "bfloat16")
        )
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse, exact, atol=0.05, rtol=0.05)
