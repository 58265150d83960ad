"""Shared by the engine's benchmarks: the workload, how our engine is timed under it, and the table of ratios.

A workload is N prompts of random tokens that share no prefix. Prefill is all prompt tokens over the time until every
stream has its first token; decode is the tokens after the first, over the time that all streams need for them together.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams

__all__ = ["Contender", "Speed", "Workload", "compare", "engine_contender"]

_FIRST_ID = 100
"""Below are the special tokens of most vocabularies."""

_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Workload:
    """`streams` prompts of `prompt_tokens` each, continued by `new_tokens` each."""

    streams: int
    prompt_tokens: int
    new_tokens: int
    vocab_size: int

    def prompts(self) -> list[list[int]]:
        """The same ones every time."""
        chance = random.Random(self.streams)
        ids = range(_FIRST_ID, self.vocab_size)
        return [chance.choices(ids, k=self.prompt_tokens) for _ in range(self.streams)]


@dataclass(frozen=True)
class Speed:
    """Tokens per second over all streams."""

    prefill: float
    decode: float

    @staticmethod
    def of(load: Workload, prefill_s: float, decode_s: float) -> "Speed":
        return Speed(
            load.streams * load.prompt_tokens / prefill_s, load.streams * (load.new_tokens - 1) / max(decode_s, 1e-9)
        )

    def best(self, other: "Speed") -> "Speed":
        return Speed(max(self.prefill, other.prefill), max(self.decode, other.decode))


@dataclass(frozen=True)
class Contender:
    """Something that runs workloads: `run` times one."""

    name: str
    run: Callable[[Workload], Speed]


def engine_contender(name: str, loaded: LoadedModel, config: EngineConfig) -> Contender:
    """Our engine without threads and HTTP around it, its prefix cache off (`config` decides the rest).

    Each workload has a new engine, which has computed a few tokens before the clock starts, as many as llama.cpp's own
    benchmark has then.
    """

    def run(load: Workload) -> Speed:
        engine = Engine(loaded, config)
        _warm_up(engine, load.prompts()[0])
        sampling = SamplingParams(temperature=0.0, max_tokens=load.new_tokens, ignore_eos=True)
        for index, prompt in enumerate(load.prompts()):
            engine.add(GenerationRequest(str(index), tuple(prompt), sampling))
        started = []
        begin = time.perf_counter()
        while engine.has_work:
            for sequence, _ in engine.step():
                engine.pause(sequence)  # it has its first token, and waits until all have
                started.append(sequence)
        prefilled = time.perf_counter()
        for sequence in started:
            engine.resume(sequence)
        while engine.has_work:
            engine.step()
        return Speed.of(load, prefilled - begin, time.perf_counter() - prefilled)

    return Contender(name, run)


def _warm_up(engine: Engine, prompt: list[int]) -> None:
    engine.add(GenerationRequest("warm-up", tuple(prompt[:_WARM_UP_TOKENS]), SamplingParams(max_tokens=0)))
    while engine.has_work:
        engine.step()


def compare(contenders: Sequence[Contender], loads: Sequence[Workload], rounds: int) -> str:
    """A table in Markdown: every contender's best round, and the first one's ratio to each of the others.

    Within a round the contenders take turns at each load, so what else the machine does hits all of them.
    """
    best: dict[tuple[str, int], Speed] = {}
    for _ in range(rounds):
        for load in loads:
            for contender in contenders:
                speed = contender.run(load)
                key = (contender.name, load.streams)
                best[key] = speed.best(best.get(key, speed))
    first, *others = [contender.name for contender in contenders]
    head = ["streams", "", *(f"{name}, tok/s" for name in (first, *others)), *(f"{first} / {name}" for name in others)]
    rows = [head, ["---"] * len(head)]
    for load in loads:
        for kind in ("prefill", "decode"):
            values = [getattr(best[name, load.streams], kind) for name in (first, *others)]
            ratios = [f"{values[0] / value:.2f}x" for value in values[1:]]
            rows.append([str(load.streams), kind, *(f"{value:,.0f}" for value in values), *ratios])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
