"""All that an engine does, on the fused executor: the same bits in any company, and nothing left behind."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as FileType

from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig, KVDType
from local_engine.engine import Engine
from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import Dry, SamplingParams
from local_engine.torch_executor import TorchExecutor
from tests.local_engine.engine_driver import Outcome, generate, last, request, tokens_of
from tests.local_engine.test_masks import Counting
from tests.local_engine.test_soak import check_answers, soak
from tests.local_engine.tiny_adapters import write_adapter
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf

SHAPE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 96}
POISON = 51
KINDS = {"F32": FileType.F32, "Q8_0": FileType.Q8_0, "Q4_0": FileType.Q4_0}
PROMPTS = [[(7 * row + 3 * column) % 40 + 8 for column in range(3 + 5 * row)] for row in range(5)]
REPEATING = [20, 21, 22, 23, 24, 25] * 3
PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"seed": 1, "context_logits": True},
    {"seed": 2, "temperature": 0.7, "top_p": 0.9, "min_p": 0.01},
    {"seed": 3, "n": 2, "best_of": 3},
    {"seed": 4, "dry": Dry(0.5), "xtc_probability": 0.5, "xtc_threshold": 0.05, "top_n_sigma": 2.0},
    {"n": 2, "best_of": 3, "beam_search": True},
]


def config_of(*, blocks: int = 200, **overrides: Any) -> EngineConfig:
    """Blocks of four positions. kv_dtype: "auto", bfloat16 to the kernels, unless it is named."""
    item_bytes = 4 if overrides.get("kv_dtype") == "float32" else 2
    block_bytes = 2 * 2 * 2 * 32 * 16 * item_bytes  # keys and values, layers, heads, dimensions, a page's positions
    return replace(
        EngineConfig(block_size=4, kv_bytes=block_bytes * (blocks + 1), max_batch_tokens=64, threads=2), **overrides
    )


def requests(adapter: str | None = None) -> list[GenerationRequest]:
    made = []
    for number, values in enumerate(PARAMS):
        # A bias makes a random model repeat itself, so that looking up finds something.
        common: dict[str, Any] = {"max_tokens": 14, "ignore_eos": True, "logit_bias": dict.fromkeys(range(20, 26), 6.0)}
        for prompt in (PROMPTS[number % 5], [*REPEATING, number]):
            made.append(request(prompt, SamplingParams(**(common | values)), name=f"{number}"))
    made.append(replace(made[0], mask=Counting(5)))
    made += [replace(item, adapter=adapter) for item in made[:4] if adapter is not None]
    return made


def told(outcome: Outcome) -> list[object]:
    """All that a reader hears, but for what depends on company: the steps, cached tokens and guesses."""
    end = last(outcome)
    events = [event for event in outcome if isinstance(event, StepOutput)]
    prompt = [token for event in events for token in event.prompt_logprobs or ()]
    logits = [event.context_logits for event in events if event.context_logits is not None]
    answers = [(tuple(answer.tokens), answer.finish, answer.score) for answer in end.others]
    tokens = [token for event in events for token in event.tokens]
    return [tokens, end.finish, end.score, answers, prompt, np.concatenate(logits).tolist() if logits else []]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return tiny_oracle(**SHAPE)


@pytest.fixture(scope="module")
def files(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("fused")
    return {name: write_gguf(oracle, folder / f"{name}.gguf", matrix_type=kind) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def fused(files: Mapping[str, Path]) -> Mapping[str, LoadedModel]:
    return {name: load_model(path, EngineConfig()) for name, path in files.items()}


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A smaller model of the same vocabulary, which guesses wrong mostly."""
    smaller = tiny_oracle(seed=9, num_hidden_layers=1, **SHAPE)
    path = write_gguf(smaller, tmp_path_factory.mktemp("draft") / "m.gguf", matrix_type=FileType.Q8_0)
    return load_model(path, EngineConfig())


@pytest.fixture(scope="module")
def adapter(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(oracle, tmp_path_factory.mktemp("adapter") / "a", seed=1)


@pytest.mark.parametrize("kv_dtype", ["auto", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_same_bits_in_any_company(
    fused: Mapping[str, LoadedModel],
    other_model: LoadedModel,
    adapter: Path,
    kind: str,
    kv_dtype: KVDType,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = fused[kind]

    def opened(draft: LoadedModel | None = None, **values: Any) -> Engine:
        engine = Engine(model, config_of(kv_dtype=kv_dtype, **values), draft=draft)
        engine.load_adapter("a", adapter)
        return engine

    assert isinstance(model.open_executor(config_of(kv_dtype=kv_dtype)), CpuExecutor)
    lone = opened(prefix_cache=False)
    expected = [told(generate(lone, [item])[0]) for item in requests("a")]
    companies: Mapping[str, Callable[[], Engine]] = {
        "batched": opened,
        "chunked": lambda: opened(max_batch_tokens=7),
        "preempted": lambda: opened(blocks=24, max_batch_tokens=16),
        "looked up": lambda: opened(draft_tokens=4),
        "guessed by itself": lambda: opened(model, draft_tokens=3, draft_kv_bytes=1 << 18),
        "guessed by another": lambda: opened(other_model, draft_tokens=3, draft_kv_bytes=1 << 17, blocks=60),
    }
    for name, build in companies.items():
        engine = build()
        for again in (False, True):
            outcomes = generate(engine, requests("a"))
            assert [told(outcome) for outcome in outcomes] == expected, name
            assert not again or name == "preempted" or any(last(outcome).cached_tokens for outcome in outcomes)
        stats = engine.stats()
        assert stats.blocks_used == 0
        assert stats.preemptions > 0 or name != "preempted"
        assert stats.accepted_draft_tokens > 0 or not engine.config.draft_tokens
        engine.close()
    assert not caplog.records  # no step went without guesses because of a defect


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_searches_on_float_weights_find_what_torch_finds(
    files: Mapping[str, Path], fused: Mapping[str, LoadedModel], length_penalty: float
) -> None:
    reference = load_model(files["F32"], EngineConfig(dtype="float32"))
    config = config_of(kv_dtype="float32")
    assert isinstance(reference.open_executor(config), TorchExecutor)
    beams = SamplingParams(n=4, beam_search=True, max_tokens=10, length_penalty=length_penalty)
    samples = SamplingParams(n=4, best_of=5, seed=7, max_tokens=10)
    items = [request(prompt, sampling) for prompt in PROMPTS for sampling in (beams, samples)]
    ours, theirs = (generate(Engine(model, config), items) for model in (fused["F32"], reference))
    for outcome, other in zip(ours, theirs, strict=True):
        pairs = zip((last(outcome), *last(outcome).others), (last(other), *last(other).others), strict=True)
        for answer, expected in pairs:
            assert [token.token_id for token in answer.tokens] == [token.token_id for token in expected.tokens]
            assert answer.score == pytest.approx(expected.score, rel=1e-4)


def test_what_is_aborted_at_any_moment_gives_its_blocks_back(fused: Mapping[str, LoadedModel]) -> None:
    engine = Engine(fused["Q8_0"], config_of(max_batch_tokens=9, draft_tokens=2))
    for steps in range(12):
        sequences = [engine.add(item) for item in requests()]
        for _ in range(steps):
            engine.step()
        for sequence in sequences:
            engine.abort(sequence)
        assert engine.stats().blocks_used == 0
        engine.scheduler.check()
    assert engine.stats().aborted > 100


@pytest.mark.parametrize("guesser", ["lookup", "draft model"])
def test_random_requests_leave_nothing_behind(
    fused: Mapping[str, LoadedModel], guesser: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = fused["Q8_0"]
    # The kernels store pages of 16 positions, though blocks of four are used: 40 of them.
    crowd = soak(model, model if guesser == "draft model" else None, requests=150, blocks=160, kv_dtype="float32")
    assert not caplog.records
    check_answers(crowd, model, every=10, kv_dtype="float32")


@pytest.mark.parametrize("kv_dtype", ["float16", "fp8", "int8"])
def test_keys_and_values_that_the_kernels_do_not_store_are_torchs_with_a_log_line(
    files: Mapping[str, Path], kv_dtype: KVDType, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(kv_dtype=kv_dtype)
    with caplog.at_level("INFO", logger="local_engine"):
        model = load_model(files["Q8_0"], config)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"not on the CPU kernels: kv_dtype {kv_dtype} is torch's")
    assert isinstance(model.open_executor(config), TorchExecutor)
    (outcome,) = generate(Engine(model, config), requests()[:1])
    assert len(tokens_of(outcome)) == 14


@pytest.fixture(scope="module", params=KINDS)
def poisoned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model to which one token is no number."""
    oracle = tiny_oracle(**SHAPE)
    with torch.no_grad():
        oracle.model.model.embed_tokens.weight[POISON] = torch.nan
    path = tmp_path_factory.mktemp("poison") / "m.gguf"
    with np.errstate(invalid="ignore"):
        write_gguf(oracle, path, matrix_type=KINDS[request.param])
    return load_model(path, EngineConfig())


@pytest.mark.parametrize("kv_dtype", ["auto", "float32"])
def test_what_is_no_number_fails_its_request_alone_and_reaches_nobody_later(
    poisoned: LoadedModel, kv_dtype: KVDType
) -> None:
    engine = Engine(poisoned, config_of(kv_dtype=kv_dtype, blocks=60))
    greedy = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True, logit_bias={POISON: -100.0})
    healthy = [request(prompt, greedy) for prompt in PROMPTS]
    expected = [tokens_of(generate(engine, [item])[0]) for item in healthy]
    bad = [request(prompt, greedy) for prompt in ([3, POISON, 4], [POISON], [POISON] * 40, [*range(8, 28), POISON])]
    outcomes = generate(engine, [item for pair in zip(healthy, bad, strict=False) for item in pair])
    assert [tokens_of(outcome) for outcome in outcomes[::2]] == expected[:4]
    assert all(isinstance(outcome[-1], GenerationFailed) for outcome in outcomes[1::2])
    assert [tokens_of(outcome) for outcome in generate(engine, healthy)] == expected
    assert (engine.stats().failed, engine.stats().blocks_used) == (4, 0)


def native_threads() -> int:
    """Those of the process that Python has not started: the kernels' own, and torch's."""
    return len(os.listdir("/proc/self/task")) - threading.active_count()


def fewest_native_threads(enough: int) -> int:
    """Waits for threads that Python has joined: they may take a moment to be gone."""
    deadline = time.monotonic() + 10
    while native_threads() > enough and time.monotonic() < deadline:
        os.sched_yield()
    return native_threads()


async def collect(engine: AsyncEngine, items: list[GenerationRequest]) -> list[list[object]]:
    async def one(item: GenerationRequest) -> list[object]:
        return told([output async for output in engine.generate(item)])

    return await asyncio.gather(*(one(item) for item in items))


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
async def test_a_closed_engine_keeps_no_thread_and_no_memory_though_it_is_still_held(
    fused: Mapping[str, LoadedModel],
) -> None:
    gc.collect()  # what other tests have left
    before = native_threads()
    held = []
    for _ in range(3):
        model = fused["Q8_0"]
        engine = AsyncEngine(model, config_of(threads=3, draft_tokens=2, draft_kv_bytes=1 << 18), draft=model)
        held.append(engine)
        await collect(engine, requests()[:2])
        assert native_threads() >= before + 4  # two more for each model
        await engine.aclose()
    assert fewest_native_threads(before) <= before
    assert not any(thread.name.startswith("local-engine") for thread in threading.enumerate())
    assert [engine.stats().blocks_used for engine in held] == [0, 0, 0]


async def test_two_engines_over_one_model_answer_as_one_alone(fused: Mapping[str, LoadedModel]) -> None:
    alone = Engine(fused["Q4_0"], config_of())
    expected = [told(generate(alone, [item])[0]) for item in requests()]
    engines = [AsyncEngine(fused["Q4_0"], config_of(max_batch_tokens=budget)) for budget in (64, 11)]
    for found in await asyncio.gather(*(collect(engine, requests()) for engine in engines)):
        assert found == expected
    for engine in engines:
        await engine.aclose()


FORKED = """
import gc, os, sys
from pathlib import Path
import torch
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request, tokens_of

torch.set_num_threads(1)
config = EngineConfig(kv_bytes=1 << 20, threads=3)
model = load_model(Path(sys.argv[1]), config)
item = request([9, 8, 11], SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True))
engine = Engine(model, config)
expected = tokens_of(generate(engine, [item])[0])
pid = os.fork()
if pid == 0:
    again = Engine(load_model(Path(sys.argv[1]), config), config)
    right = tokens_of(generate(again, [item])[0]) == expected
    engine.close()  # its threads are the parent's
    del engine, again
    gc.collect()
    sys.exit(0 if right else 3)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert tokens_of(generate(engine, [item])[0]) == expected
sys.exit(status)  # with an engine that nobody closed
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_process_that_was_forked_has_engines_of_its_own_and_ends(files: Mapping[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(files["Q8_0"])], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


EXITING = """
import asyncio, sys
from pathlib import Path
from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import request

config = EngineConfig(kv_bytes=1 << 24, threads=2)
engine = AsyncEngine(load_model(Path(sys.argv[1]), config), config)
sampling = SamplingParams(ignore_eos=True, top_k=9, logprobs=2)
streams = [engine.generate(request([9] * length, sampling)) for length in range(1, 9)]

async def first():
    await asyncio.gather(*(anext(stream) for stream in streams))

loop = asyncio.new_event_loop()
loop.run_until_complete(first())
"""


def test_a_process_that_ends_in_the_middle_of_a_step_ends_well(files: Mapping[str, Path]) -> None:
    command = [sys.executable, "-c", EXITING, str(files["Q8_0"])]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
def test_an_executor_that_nobody_closed_goes_with_its_last_holder(fused: Mapping[str, LoadedModel]) -> None:
    gc.collect()
    before = native_threads()
    executor = fused["Q8_0"].open_executor(config_of(threads=3))
    assert native_threads() == before + 2
    del executor
    assert fewest_native_threads(before) == before


def test_a_closed_executor_refuses_to_run_and_may_be_closed_again(fused: Mapping[str, LoadedModel]) -> None:
    executor = fused["Q8_0"].open_executor(config_of())
    executor.close()
    executor.close()
    with pytest.raises(RuntimeError, match="the executor is closed"):
        executor.logits(torch.zeros(1, 128))
