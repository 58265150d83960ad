"""Rows of images on the fused executor: as torch computes them, and the same bits however a prompt is cut."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as FileType

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.images import PlacedImage
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from local_engine.torch_executor import TorchExecutor
from tests.local_engine.engine_driver import last, run
from tests.local_engine.kernels.cpu.test_executor import DELTA, EXACT, hidden_of, sequence_of
from tests.local_engine.models.tiny_image_oracles import ImagePrompt, image_oracle, pixels_of
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf

HIDDEN, LENGTH = 64, 700
# Some that the parts of a long step would cut, one longer than a part, two with no text between, one at the end.
SPANS = ((3, 20), (250, 262), (262, 300), (310, 620), (690, 700))
CUTS = (3, 25, 100, 310, 620, 645, 690)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    oracle = oracle_of(
        "Gemma3ForCausalLM",
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=30,
        max_position_embeddings=1024,
    )
    return write_gguf(oracle, tmp_path_factory.mktemp("decoder") / "m.gguf")


def sequence_with_images(*, bidirectional: bool = True, scored: bool = True, first_block: int = 1) -> Sequence:
    sequence = sequence_of([(7 * index + 3) % 128 for index in range(LENGTH)], first_block=first_block, scored=scored)
    rows = torch.randn(LENGTH, HIDDEN, generator=torch.Generator().manual_seed(5))
    sequence.images = tuple(PlacedImage(start, stop, b"", rows[start:stop]) for start, stop in SPANS)
    sequence.uncut = SPANS if bidirectional else ()
    return sequence


def chunks_of(sequence: Sequence, cuts: tuple[int, ...]) -> list[Chunk]:
    return [Chunk(sequence, start, stop) for start, stop in zip((0, *cuts), (*cuts, LENGTH), strict=True)]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_states_are_those_of_torch(decoder: Path, bidirectional: bool) -> None:
    torchs = EngineConfig(dtype="float32", kv_bytes=EXACT.kv_bytes)
    reference = load_model(decoder, torchs).open_executor(torchs)
    assert isinstance(reference, TorchExecutor)
    executor = load_model(decoder, EXACT).open_executor(EXACT)
    whole = [Chunk(sequence_with_images(bidirectional=bidirectional), 0, LENGTH)]
    expected, found = hidden_of(reference, whole), hidden_of(executor, whole)
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-4)
    asked_last = [Chunk(sequence_with_images(bidirectional=bidirectional, scored=False), 0, LENGTH)]
    assert torch.equal(hidden_of(executor, asked_last)[-1], found[-1])


# Rows of states that the kernels compute, and axes for half of a head.
HYBRID = DELTA | {
    "head_dim": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    },
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("Qwen3VLForConditionalGeneration", {}),
        ("Qwen3_5ForConditionalGeneration", {"of_text": HYBRID}),
        ("Qwen3_5MoeForConditionalGeneration", {"of_text": HYBRID}),
    ],
)
def test_positions_of_three_axes_are_those_of_transformers_however_a_prompt_is_cut(
    name: str, shape: dict[str, Any], tmp_path: Path
) -> None:
    oracle = image_oracle(name, **shape)
    prompt = ImagePrompt([3, 101, pixels_of(1, 24, 40), 102, 64, 101, pixels_of(2, 16, 8), 102, 9, 11])
    loaded = load_model(oracle.write(tmp_path), EXACT)
    assert isinstance(loaded.open_executor(EXACT), CpuExecutor)
    asked = SamplingParams(temperature=0.0, max_tokens=1, context_logits=True)
    found = []
    for budget in (64, 5):
        engine = Engine(loaded, replace(EXACT, max_batch_tokens=budget, kv_bytes=1 << 24))
        sequence = engine.add(prompt.request(asked))
        logits = last(run(engine)[sequence]).context_logits
        assert logits is not None
        found.append(logits)
    torch.testing.assert_close(torch.from_numpy(found[0]), oracle.logits(prompt), atol=5e-4, rtol=1e-4)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.fixture(scope="module", params=["float32", "auto"])
def config(request: pytest.FixtureRequest) -> EngineConfig:
    return EngineConfig(kv_dtype=request.param, kv_bytes=1 << 23, threads=2)


@pytest.fixture(scope="module")
def quantised(config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    oracle = oracle_of("LlamaForCausalLM", hidden_size=HIDDEN, intermediate_size=96, num_attention_heads=2)
    path = write_gguf(oracle, tmp_path_factory.mktemp("q") / "q8.gguf", matrix_type=FileType.Q8_0)
    return load_model(path, config)


def test_a_row_is_the_same_bits_however_the_prompt_is_cut_and_whoever_is_beside_it(
    quantised: LoadedModel, config: EngineConfig
) -> None:
    executor = quantised.open_executor(config)
    whole = hidden_of(executor, [Chunk(sequence_with_images(), 0, LENGTH)])
    other = [(5 * index) % 90 for index in range(60)]
    pieces = []
    for turn, chunk in enumerate(chunks_of(sequence_with_images(first_block=50), CUTS)):
        beside = Chunk(sequence_of(other, first_block=100), 6 * turn, 6 * turn + 6)
        pieces.append(hidden_of(executor, [beside, chunk])[6:])
    assert torch.equal(torch.cat(pieces), whole)
    causal = hidden_of(executor, [Chunk(sequence_with_images(bidirectional=False), 0, LENGTH)])
    assert torch.equal(causal[:3], whole[:3])
    assert not torch.equal(causal[3:19], whole[3:19])
