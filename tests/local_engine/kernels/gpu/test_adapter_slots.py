"""LoRA adapters on the fused decoder, by the twins of its kernels: slots, and the answers of the torch reference."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest
from local_engine.kernels.dispatch import choose_kernels, device_facts
from local_engine.kernels.gpu.adapter_slots import AdapterSlots
from local_engine.kernels.gpu.executor import GpuExecutor
from local_engine.layers.lora import LowRank
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import generate, request, tokens_of
from tests.local_engine.kernels.gpu.on_cpu import FUSED, fused_config, load_on_cpu
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.test_adapters_everywhere import TARGETS
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_adapters import ALL_LINEAR, adapted, write_adapter
from tests.local_engine.tiny_models import Oracle, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
DETERMINISTIC = ["LlamaForCausalLM", "Phi3ForCausalLM"]
CPU = torch.device("cpu")


def executor_of(engine: Engine) -> GpuExecutor:
    executor = engine._runner._executor
    assert isinstance(executor, GpuExecutor)
    return executor


def answers(engine: Engine, adapters: list[str | None]) -> list[list[int]]:
    requests = [replace(request(PROMPTS[0], GREEDY), adapter=adapter) for adapter in adapters]
    return [tokens_of(outcome) for outcome in generate(engine, requests)]


@pytest.mark.parametrize(
    ("name", "deterministic"),
    [*((name, False) for name in FUSED), *((name, True) for name in DETERMINISTIC)],
)
def test_every_site_of_every_architecture_adds_what_it_adds_in_peft(
    name: str, deterministic: bool, tmp_path: Path
) -> None:
    oracle = oracle_of(name)
    targets = TARGETS.get(name, ALL_LINEAR)
    folders = {
        "wide": write_adapter(oracle, tmp_path / "wide", target_modules=targets, r=7, lora_alpha=4),
        "narrow": write_adapter(
            oracle,
            tmp_path / "narrow",
            target_modules=targets if isinstance(targets, str) else targets[-1:],
            r=2,
            seed=1,
        ),
    }
    config = fused_config(deterministic=deterministic, max_batch_tokens=7)
    engine = Engine(load_on_cpu(write_safetensors(oracle, tmp_path / "model"), config), config)
    expected: dict[str | None, list[int]] = {None: oracle.greedy(PROMPTS[0], 4)}
    for adapter, folder in folders.items():
        engine.load_adapter(adapter, folder)
        expected[adapter] = adapted(oracle, folder).greedy(PROMPTS[0], 4)
    asked = [None, "wide", "narrow", "wide"]
    assert answers(engine, asked) == [expected[adapter] for adapter in asked]
    assert len({tuple(answer) for answer in expected.values()}) > 1


def test_steps_of_static_tensors_follow_the_rows_and_are_forgotten_when_the_matrices_move(
    oracle: Oracle, tiny_folder: Path, tmp_path: Path
) -> None:
    config = fused_config()
    engine = Engine(load_on_cpu(tiny_folder, config), config)
    graphs = executor_of(engine)._graphs
    assert graphs is not None
    expected: dict[str | None, list[int]] = {None: oracle.greedy(PROMPTS[0], 4)}
    for rank in (4, 40):
        name = f"rank {rank}"
        engine.load_adapter(name, write_adapter(oracle, tmp_path / name, r=rank, lora_alpha=rank, seed=rank))
        expected[name] = adapted(oracle, tmp_path / name).greedy(PROMPTS[0], 4)

    asked = ["rank 4", None, "rank 4"]
    assert answers(engine, asked) == [expected[name] for name in asked]
    assert {1, 4} <= graphs._adapted.keys()
    assert answers(engine, ["rank 40"]) == [expected["rank 40"]]
    assert graphs._adapted.keys() == {1}
    asked = [None, "rank 40", "rank 4", None, "rank 40"]
    assert answers(engine, asked) == [expected[name] for name in asked]


class Layer:
    """One linear layer, and slots for its adapters."""

    def __init__(self, *, fixed: bool = False) -> None:
        self.moves = 0
        self.slots = AdapterSlots(
            choose_kernels(device_facts(CPU)), device=CPU, dtype=torch.float32, fixed=fixed, moving=self._moving
        )

    def _moving(self) -> None:
        self.moves += 1

    def slots_of(self, *adapters: Adapter | None) -> list[int]:
        chunks = []
        for adapter in adapters:
            sequence = Sequence(GenerationRequest("r", (3,), GREEDY), 0, 0, frozenset(), 1)
            sequence.adapter = adapter
            chunks.append(Chunk(sequence, 0, 1))
        found = self.slots.slots_of(chunks)
        return [found.get(chunk.sequence, -1) for chunk in chunks]

    def added(self, x: Tensor, *adapters: Adapter | None, name: str = "q") -> Tensor:
        """What the rows of x get, which have these adapters."""
        y = torch.zeros(len(x), 24)
        (changes,) = self.slots.changes(torch.tensor(self.slots_of(*adapters), dtype=torch.int32))
        changes.add(name, y, x)
        return y


def low_rank(rank: int, seed: int, outputs: int = 24) -> LowRank:
    generator = torch.Generator().manual_seed(seed)
    down, up = torch.randn(rank, 16, generator=generator), torch.randn(outputs, rank, generator=generator)
    return LowRank(down / rank**0.5, up)


def made(rank: int, *, name: str = "q", seed: int = 0) -> Adapter:
    return Adapter(f"{rank} {seed}", {name: low_rank(rank, seed)})


def product(x: Tensor, adapter: Adapter) -> Tensor:
    delta = adapter.deltas["q"]
    return x @ delta.down.T @ delta.up.T


X = torch.randn(6, 16, generator=torch.Generator().manual_seed(9))


def test_slots_stay_and_matrices_move_only_where_there_is_no_room() -> None:
    layer = Layer()
    first, second, third, fourth, large = (made(4, seed=1), made(4, seed=2), made(4, seed=3), made(4, seed=4), made(20))
    assert layer.slots_of(first, None, first) == [0, -1, 0]
    assert layer.slots_of(second, first) == [1, 0]
    assert layer.slots_of(third) == [2]
    moves = layer.moves
    assert layer.slots_of(fourth, third, second, first) == [3, 2, 1, 0]
    assert layer.moves == moves  # there was room for four
    assert layer.slots_of(large) == [4]
    assert layer.moves == moves + 1
    order = (first, large, None, third, second, fourth)
    added = layer.added(X, *order)
    for row, adapter in enumerate(order):
        expected = torch.zeros(24) if adapter is None else product(X[row], adapter)
        torch.testing.assert_close(added[row], expected)


def test_the_slot_of_an_adapter_that_nobody_holds_is_taken_by_another_of_which_nothing_is_left() -> None:
    layer = Layer()
    first, second = made(16, seed=1), made(16, name="q", seed=2)
    layer.slots_of(first, second)
    moves = layer.moves
    del first
    other = made(3, seed=3)
    assert layer.slots_of(other, second) == [0, 1]
    torch.testing.assert_close(layer.added(X[:2], other, second)[0], product(X[0], other))
    del other
    elsewhere = made(3, name="k", seed=4)
    assert layer.slots_of(elsewhere) == [0]
    assert not layer.added(X[:1], elsewhere).any()
    torch.testing.assert_close(
        layer.added(X[:1], elsewhere, name="k"), X[:1] @ low_rank(3, 4).down.T @ low_rank(3, 4).up.T
    )
    assert layer.moves == moves + 1  # for the other layer alone


def test_a_rank_above_what_a_kernel_takes_is_a_sum_of_smaller_ones() -> None:
    layer = Layer()
    large, small = made(600, seed=1), made(5, seed=2)
    added = layer.added(X[:3], small, large, small)
    torch.testing.assert_close(added[0], product(X[0], small))
    torch.testing.assert_close(added[1], product(X[1], large), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "delta", "reason"),
    [
        ("q", LowRank(low_rank(4, 2).down, low_rank(4, 2, outputs=23).up), "delta: expected what fits"),
        ("k", LowRank(torch.zeros(1, 1).expand(4, 1 << 45), torch.zeros(24, 4)), "memory"),
    ],
    ids=["of another shape", "larger than the memory"],
)
def test_an_adapter_that_cannot_be_put_leaves_the_others_as_they_were(name: str, delta: LowRank, reason: str) -> None:
    layer = Layer()
    sound = made(4, seed=1)
    layer.slots_of(sound)
    broken = Adapter("broken", {name: delta})
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError), match=reason):
            layer.slots_of(sound, broken)
    torch.testing.assert_close(layer.added(X[:1], sound), product(X[:1], sound))


def test_a_row_has_its_bits_beside_any_others_where_that_is_asked_for() -> None:
    layer = Layer(fixed=True)
    one, other = made(4, seed=1), made(9, seed=2)
    together = layer.added(X, other, one, None, one, other, other)
    assert torch.equal(layer.added(X[3:4], one), together[3:4])
