"""The fused executor against transformers, against torch, and against itself in other company."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as FileType
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.executor import Executor
from local_engine.generation import GenerationRequest
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence as EngineSequence
from local_engine.torch_executor import TorchExecutor
from tests.local_engine.engine_driver import generate, request, tokens_of
from tests.local_engine.kernels.cpu.libraries import runnable_libraries
from tests.local_engine.models.test_adapters_everywhere import TARGETS
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_adapters import ALL_LINEAR, adapted, write_adapter
from tests.local_engine.tiny_models import Oracle, write_gguf, write_safetensors

EXACT = EngineConfig(kv_dtype="float32", kv_bytes=1 << 22, threads=2)
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
PROMPT = [3, 17, 99, 42, 5, 64, 23, 8, 111, 2, 77, 31, 90, 12, 55, 6, 71, 28, 39, 40, 41, 13]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)

DELTA = {
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 96,
    "partial_rotary_factor": 0.5,
}
MAMBA = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
    "mamba_expand": 4,
    "mamba_n_heads": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 8,
}
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "LlamaForCausalLM": {"attention_bias": True, "mlp_bias": True},
    "MistralForCausalLM": {"sliding_window": 5, "head_dim": 64},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {"head_dim": 32},
    "Gemma2ForCausalLM": {"head_dim": 32, "query_pre_attn_scalar": 32},
    "Gemma3ForCausalLM": {"head_dim": 64, "query_pre_attn_scalar": 64},
    "Phi3ForCausalLM": {
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1 + 0.1 * index for index in range(16)],
            "long_factor": [2 + 0.1 * index for index in range(16)],
            "original_max_position_embeddings": 64,
        },
    },
    "SmolLM3ForCausalLM": {},
    "Ministral3ForCausalLM": {"head_dim": 32},
    "GraniteForCausalLM": {},
    "GraniteMoeHybridForCausalLM": {"shared_intermediate_size": 96, **MAMBA},
    "Glm4ForCausalLM": {"head_dim": 64},
    "SeedOssForCausalLM": {"head_dim": 32},
    "Ernie4_5ForCausalLM": {"head_dim": 32},
    "Olmo2ForCausalLM": {},
    "Olmo3ForCausalLM": {},
    "CohereForCausalLM": {},
    "Cohere2ForCausalLM": {},
    "HunYuanDenseV1ForCausalLM": {"head_dim": 32},
    "Exaone4ForCausalLM": {},
    "Qwen3_5ForCausalLM": {"head_dim": 64, **DELTA},
    "Lfm2ForCausalLM": {
        "num_hidden_layers": 5,
        "layer_types": ["conv", "full_attention", "conv", "full_attention", "conv"],
    },
}


def sequence_of(
    tokens: Sequence[int], *, first_block: int = 1, block_size: int = 16, scored: bool = True
) -> EngineSequence:
    """scored: all its states are asked for."""
    sampling = SamplingParams(prompt_logprobs=0 if scored else None)
    sequence = EngineSequence(GenerationRequest("r", tuple(tokens), sampling), 0, 0, frozenset(), 1)
    # Not in order, as blocks of a used pool are.
    sequence.blocks = list(range(first_block, first_block + 2 + len(tokens) // block_size))[::-1]
    sequence.next_state = 1
    return sequence


def hidden_of(executor: Executor, chunks: Sequence[Chunk]) -> Tensor:
    with torch.inference_mode():
        return executor.forward(chunks).hidden


def logits_of(loaded: LoadedModel, config: EngineConfig, tokens: Sequence[int] = PROMPT) -> Tensor:
    executor = loaded.open_executor(config)
    sequence = sequence_of(tokens, block_size=config.block_size)
    with torch.inference_mode():
        return executor.logits(hidden_of(executor, [Chunk(sequence, 0, len(tokens))]))


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=list(ARCHITECTURES))
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return oracle_of(request.param, **(SHAPE | dict(ARCHITECTURES[request.param])))


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_logits_and_greedy_tokens_are_those_of_transformers(oracle: Oracle, kind: str, tmp_path: Path) -> None:
    path = write_safetensors(oracle, tmp_path) if kind == "safetensors" else write_gguf(oracle, tmp_path / "m.gguf")
    loaded = load_model(path, EXACT)
    assert isinstance(loaded.open_executor(EXACT), CpuExecutor)
    torch.testing.assert_close(logits_of(loaded, EXACT), oracle.logits(PROMPT), atol=5e-4, rtol=1e-4)
    (outcome,) = generate(Engine(loaded, EXACT), [request(PROMPT, GREEDY)])
    answer = tokens_of(outcome)
    assert answer == oracle.greedy(PROMPT, 12, guess=answer)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_adapters_change_rows_as_in_peft(name: str, tmp_path: Path) -> None:
    oracle = oracle_of(name, **(SHAPE | dict(ARCHITECTURES[name])))
    folder = write_adapter(oracle, tmp_path / "adapter", target_modules=TARGETS.get(name, ALL_LINEAR))
    engine = Engine(load_model(write_safetensors(oracle, tmp_path / "m"), EXACT), EXACT)
    engine.load_adapter("a", folder)
    plain, changed = (
        GenerationRequest(name, tuple(PROMPT), GREEDY, adapter=adapter) for name, adapter in (("p", None), ("c", "a"))
    )
    outcomes = generate(engine, [plain, changed, plain])
    base, own, again = map(tokens_of, outcomes)
    assert base == again == oracle.greedy(PROMPT, 12, guess=base)
    assert own == adapted(oracle, folder).greedy(PROMPT, 12, guess=own)


@pytest.fixture(scope="module")
def llama() -> Oracle:
    return oracle_of("LlamaForCausalLM", **(SHAPE | {"hidden_size": 128, "num_attention_heads": 4}))


@pytest.fixture(scope="module")
def quantised(llama: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(llama, tmp_path_factory.mktemp("q") / "q8.gguf", matrix_type=FileType.Q8_0)


@pytest.mark.parametrize("kv_dtype", ["auto", "float32"])
@pytest.mark.parametrize("block_size", [16, 4, 24, 64])
def test_a_row_is_the_same_bits_however_its_prompt_is_cut_and_whoever_is_beside_it(
    quantised: Path, kv_dtype: Any, block_size: int
) -> None:
    config = EngineConfig(kv_dtype=kv_dtype, kv_bytes=1 << 24, block_size=block_size, threads=2)
    executor = load_model(quantised, config).open_executor(config)
    tokens = [(7 * index + 3) % 128 for index in range(45)]
    whole = hidden_of(executor, [Chunk(sequence_of(tokens, block_size=block_size), 0, 45)])
    alone = sequence_of(tokens, first_block=30, block_size=block_size)
    rows = [hidden_of(executor, [Chunk(alone, index, index + 1)]) for index in range(45)]
    assert torch.equal(torch.cat(rows), whole)
    cut = sequence_of(tokens, first_block=60, block_size=block_size)
    others = [sequence_of(tokens[::-1], first_block=90 + 20 * n, block_size=block_size) for n in range(3)]
    pieces = []
    for turn, (start, stop) in enumerate(((0, 7), (7, 8), (8, 31), (31, 45))):
        beside = [Chunk(other, 3 * turn, 3 * turn + 1 + n) for n, other in enumerate(others)]
        hidden = hidden_of(executor, [*beside, Chunk(cut, start, stop)])
        pieces.append(hidden[-(stop - start) :])
    assert torch.equal(torch.cat(pieces), whole)
    many = torch.cat([whole] * 3)
    with torch.inference_mode():
        together = executor.logits(many)
        assert torch.equal(executor.logits(many[17:18]), together[17:18])


def test_every_instruction_set_and_thread_count_gives_the_same_bits(quantised: Path) -> None:
    found = []
    for library in runnable_libraries():
        for threads in (1, 3):
            config = EngineConfig(cpu_instruction_set=library.instruction_set, threads=threads, kv_bytes=1 << 22)  # type: ignore[arg-type]
            found.append(logits_of(load_model(quantised, config), config))
    for logits in found[1:]:
        assert torch.equal(logits, found[0])


def test_long_sequences_are_shared_by_many_threads_and_stay_the_same_bits(quantised: Path) -> None:
    tokens = [(11 * index + 5) % 128 for index in range(900)]
    found = []
    for threads in (1, 3):
        config = EngineConfig(kv_bytes=1 << 24, threads=threads)
        executor = load_model(quantised, config).open_executor(config)
        sequence, short = sequence_of(tokens), sequence_of(tokens, first_block=70)
        hidden_of(executor, [Chunk(sequence, 0, 898)])
        alone = hidden_of(executor, [Chunk(sequence, 898, 899)])  # its attention is cut into spans
        beside = hidden_of(executor, [Chunk(short, 0, 40), Chunk(sequence, 898, 900)])
        assert torch.equal(beside[40:41], alone)
        found.append(beside)
    assert torch.equal(found[0], found[1])


def test_the_likeliest_logits_are_computed_finely(quantised: Path) -> None:
    exact = EngineConfig(dtype="float32", kv_bytes=1 << 22)
    reference = load_model(quantised, exact).open_executor(exact)
    executor = load_model(quantised, EXACT).open_executor(EXACT)
    assert isinstance(reference, TorchExecutor)
    hidden = torch.randn(7, 128, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        expected, got = reference.logits(hidden), executor.logits(hidden)
    errors = (got - expected).abs()
    best_of_tile = expected.view(7, -1, 16).amax(-1).repeat_interleave(16, -1)
    behind = expected.amax(-1, keepdim=True) - best_of_tile
    assert errors[behind < 2.9].max() < errors[behind > 3.1].max() / 20


@pytest.mark.parametrize(
    "kind", [FileType.Q4_0, FileType.Q4_1, FileType.Q5_0, FileType.Q5_1, FileType.Q8_0, FileType.MXFP4]
)
def test_quantised_weights_give_torchs_distribution(llama: Oracle, tmp_path: Path, kind: FileType) -> None:
    path = write_gguf(llama, tmp_path / "m.gguf", matrix_type=kind)
    reference = EngineConfig(dtype="float32", kv_bytes=1 << 22)
    expected = logits_of(load_model(path, reference), reference).log_softmax(-1)
    got = logits_of(load_model(path, EXACT), EXACT).log_softmax(-1)
    # A random model magnifies what is rounded: the bound tells rounding from a wrong weight, which gives more than 1.
    assert 1e-6 < float((expected.exp() * (expected - got)).sum(-1).mean()) < 0.1


@pytest.mark.parametrize(("weights", "allowed"), [("int8", 0.1), ("int4", 2.5)])
def test_floats_can_be_rounded_when_they_are_loaded(
    llama: Oracle, tmp_path: Path, weights: Any, allowed: float
) -> None:
    path = write_safetensors(llama, tmp_path)
    config = EngineConfig(weights=weights, kv_dtype="float32", kv_bytes=1 << 22)
    expected = llama.logits(PROMPT).log_softmax(-1)
    got = logits_of(load_model(path, config), config).log_softmax(-1)
    assert 1e-6 < float((expected.exp() * (expected - got)).sum(-1).mean()) < allowed


def test_long_prompts_go_through_in_parts(quantised: Path) -> None:
    config = EngineConfig(kv_bytes=1 << 24, max_batch_tokens=1400, threads=2)
    executor = load_model(quantised, config).open_executor(config)
    tokens = [(5 * index + 1) % 128 for index in range(1300)]  # more rows than go through the layers at once
    whole = hidden_of(executor, [Chunk(sequence_of(tokens), 0, 1300)])
    other = sequence_of(tokens, first_block=200)
    first = hidden_of(executor, [Chunk(other, 0, 900)])
    assert torch.equal(torch.cat([first, hidden_of(executor, [Chunk(other, 900, 1300)])]), whole)


def test_a_prompts_last_state_is_the_same_where_no_other_is_asked_for(quantised: Path) -> None:
    config = EngineConfig(kv_bytes=1 << 24, max_batch_tokens=700, threads=2)
    executor = load_model(quantised, config).open_executor(config)
    tokens = [(5 * index + 1) % 128 for index in range(600)]
    whole = hidden_of(executor, [Chunk(sequence_of(tokens), 0, 600)])
    first, second = (sequence_of(tokens, first_block=block, scored=False) for block in (100, 200))
    mixed = hidden_of(executor, [Chunk(second, 0, 1), Chunk(first, 0, 300), Chunk(sequence_of(tokens[:9]), 0, 9)])
    assert torch.equal(mixed[[0, 300]], whole[[0, 299]])
    assert torch.equal(mixed[301:], whole[:9])
    rest = hidden_of(executor, [Chunk(first, 300, 600, draft=tuple(tokens[598:])), Chunk(second, 1, 600)])
    assert torch.equal(rest[297:300], whole[597:])
    assert torch.equal(rest[-1], whole[-1])


def test_copied_blocks_hold_what_the_others_held(quantised: Path) -> None:
    config = EngineConfig(kv_bytes=1 << 22)
    executor = load_model(quantised, config).open_executor(config)
    sequence = sequence_of(PROMPT)
    hidden_of(executor, [Chunk(sequence, 0, len(PROMPT))])
    twin = sequence_of(PROMPT, first_block=10)
    executor.copy_blocks(list(zip(sequence.blocks, twin.blocks, strict=True)))
    last = len(PROMPT) - 1
    expected = hidden_of(executor, [Chunk(sequence, last, last + 1)])
    assert torch.equal(hidden_of(executor, [Chunk(twin, last, last + 1)]), expected)
    # A swap reads both before it writes either.
    a, b = sequence.blocks[0], sequence.blocks[1]
    executor.copy_blocks([(a, b), (b, a)])
    sequence.blocks[:2] = [b, a]
    assert torch.equal(hidden_of(executor, [Chunk(sequence, last, last + 1)]), expected)


def test_memory_is_got_ahead_of_its_use_and_nothing_in_use_is_touched(quantised: Path) -> None:
    config = EngineConfig(kv_bytes=64 << 20)
    executor = load_model(quantised, config).open_executor(config)
    low, high = sequence_of(PROMPT), sequence_of(PROMPT, first_block=executor.num_blocks // 2)
    expected = hidden_of(executor, [Chunk(low, 0, len(PROMPT))])[20:]
    hidden_of(executor, [Chunk(high, 0, 20)])  # far behind what is there
    steps = 0
    while executor.prepare():
        steps += 1
    assert 0 < steps < 32  # pieces of 2 MB, of the half that is left
    assert torch.equal(hidden_of(executor, [Chunk(high, 20, len(PROMPT))]), expected)
    copied = sequence_of(PROMPT, first_block=executor.num_blocks - 4)
    executor.copy_blocks(list(zip(high.blocks, copied.blocks, strict=True)))
    assert not executor.prepare()
    assert torch.equal(hidden_of(executor, [Chunk(copied, 20, len(PROMPT))]), expected)


def test_what_asks_for_torch_gets_it(quantised: Path) -> None:
    for config in (
        EngineConfig(dtype="float32", kv_bytes=1 << 22),
        EngineConfig(weights="float32", kv_bytes=1 << 22),
        EngineConfig(kv_dtype="int8", kv_bytes=1 << 22),
    ):
        assert isinstance(load_model(quantised, config).open_executor(config), TorchExecutor)


def test_what_the_kernels_cannot_run_is_told_in_one_log_line(
    llama: Oracle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = oracle_of("LlamaForCausalLM", hidden_size=48, num_attention_heads=2, num_key_value_heads=2)
    with caplog.at_level("INFO", logger="local_engine"):
        load_model(write_safetensors(odd, tmp_path / "odd"), EngineConfig())
        load_model(write_safetensors(llama, tmp_path / "llama"), EngineConfig())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "odd runs on torch in float32, not on the CPU kernels: head_dim 24, which is no multiple of 32"
    assert lines[1] == f"llama runs on the CPU kernels for {runnable_libraries()[0].instruction_set}"
    with pytest.raises(ModelLoadError, match="weights: int8 needs the CPU kernels: head_dim 24"):
        load_model(tmp_path / "odd", EngineConfig(weights="int8"))


def test_a_pool_that_is_too_small_or_too_large_is_refused(quantised: Path) -> None:
    loaded = load_model(quantised, EngineConfig())
    for size in (1000, 1 << 50):
        with pytest.raises(InvalidInput, match="kv_bytes"):
            loaded.open_executor(EngineConfig(kv_bytes=size))


def test_an_instruction_set_that_the_cpu_lacks_is_refused(quantised: Path) -> None:
    with pytest.raises(InvalidInput, match="neon is not built, or this CPU does not have it"):
        load_model(quantised, EngineConfig(cpu_instruction_set="neon"))
