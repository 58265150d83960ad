#!/usr/bin/env python3
"""What a constrained stream costs its neighbours: 16 streams of which none, one or all follow a grammar, in one run.

    python bench/engine/structured.py                      # SmolLM2-135M on the default kernels
    python bench/engine/structured.py --streams 8 --new 64

The cases take turns in each round, and a figure is the best round: the decode speed of the streams that no
grammar binds (of all of them where all are bound), beside that of the same streams when none is bound.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from speed import Workload

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest, TokenMask
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from providers.local.grammar import Grammars
from providers.local.grammar_text import Grammar, GrammarWriter
from providers.local.model_source import fetch
from providers.local.tokenizer import load_tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
        "kind": {"enum": ["person", "company", "other"]},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
    },
    "required": ["name", "age", "tags", "kind", "zip"],
    "additionalProperties": False,
}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 1000}
"""Goes on for as long as anybody measures."""
SLOW_MASK_S = 0.05


def schema_grammar() -> Grammar:
    writer = GrammarWriter()
    return writer.finish(writer.schema(PEOPLE, "schema"))


def tagged_grammar() -> Grammar:
    """Text in which a tool call may begin anywhere: nearly every token is allowed, which is the costliest mask."""
    writer = GrammarWriter()
    call = f'{writer.text_until(["<tool_call>"])} {writer.schema(PERSON, "schema")} "</tool_call>"'
    return writer.finish(f"({call})* {writer.text()}")


class SlowMask:
    """A mask that takes long: what a grammar at its bounds would."""

    def __init__(self, inner: TokenMask) -> None:
        self._inner = inner

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        time.sleep(SLOW_MASK_S)
        self._inner.fill(row)

    def accept(self, token_id: int) -> bool:
        return self._inner.accept(token_id)

    def fork(self) -> "SlowMask":
        return SlowMask(self._inner.fork())


@dataclass(frozen=True)
class Case:
    """`bound` of the streams get a mask each."""

    name: str
    bound: int
    mask: Callable[[], TokenMask] | None


def decode_speed(loaded: LoadedModel, config: EngineConfig, load: Workload, case: Case) -> tuple[float, float]:
    """Tokens a second of the free streams together (of all where none is free), and of one that is bound."""
    engine = Engine(loaded, config)
    sampling = SamplingParams(temperature=1.0, seed=1, max_tokens=load.new_tokens, ignore_eos=True)
    for index, prompt in enumerate(load.prompts()):
        mask = case.mask() if case.mask is not None and index < case.bound else None
        engine.add(GenerationRequest(str(index), tuple(prompt), sampling, mask=mask))
    started = []
    while engine.has_work:
        for sequence, _ in engine.step():
            engine.pause(sequence)
            started.append(sequence)
    bound = [sequence for sequence in started if int(sequence.request.request_id) < case.bound]
    counted = [sequence for sequence in started if sequence not in bound] or bound
    for sequence in started:
        engine.resume(sequence)
    before = [sum(one.num_generated for one in group) for group in (counted, bound)]
    begin = time.perf_counter()
    while not all(sequence.done for sequence in counted):
        engine.step()
    took = time.perf_counter() - begin
    after = [sum(one.num_generated for one in group) for group in (counted, bound)]
    engine.close()
    free, held = ((late - early) / took for early, late in zip(before, after, strict=True))
    return free, held / max(1, len(bound))


async def masks(grammars: Grammars, grammar: Grammar) -> tuple[Callable[[], TokenMask], float]:
    """What makes masks of a grammar, and the milliseconds that compiling it took."""
    begin = time.perf_counter()
    first = await grammars.mask(grammar)
    return first.fork, (time.perf_counter() - begin) * 1e3


def fill_times(mask: TokenMask, ids: list[int], words: int) -> str:
    """The milliseconds for a mask along these tokens."""
    times = []
    for token_id in ids:
        row = np.zeros(words, np.uint32)
        begin = time.perf_counter()
        mask.fill(row)
        times.append((time.perf_counter() - begin) * 1e3)
        mask.accept(token_id)
    times.sort()
    return f"{times[len(times) // 2]:.3f} ms in the middle, {times[-1]:.2f} ms at most"


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a .gguf file or a safetensors folder; default: SmolLM2-135M")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64, metavar="TOKENS", help="of each prompt")
    parser.add_argument("--new", type=int, default=96, metavar="TOKENS", help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = options_given()
    torch.set_num_threads(options.threads)
    path = options.model or fetch("smollm2-135m-instruct")
    config = EngineConfig(threads=options.threads, prefix_cache=False)
    loaded = load_model(path, config)
    vocab_size = loaded.info.config.vocab_size
    tokenizer = load_tokenizer(path)
    begin = time.perf_counter()
    grammars = Grammars(tokenizer, vocab_size, loaded.info.stop_token_ids)
    writer = GrammarWriter()
    asyncio.run(grammars.mask(writer.finish('"x"')))
    print(f"vocabulary of {vocab_size} tokens read in {(time.perf_counter() - begin) * 1e3:.0f} ms")
    of_schema, schema_ms = asyncio.run(masks(grammars, schema_grammar()))
    of_tags, tags_ms = asyncio.run(masks(grammars, tagged_grammar()))
    words = -(-vocab_size // 32)
    person = '[{"name": "Zoë Łuk", "age": 42, "tags": ["a", "b c"], "kind": "person", "zip": "12345"},'
    text = f"Let me see what I can say about it. <tool_call>{person[1:-1]}</tool_call> That is it."
    for name, ms, make, sample in (
        ("a list of objects", schema_ms, of_schema, person),
        ("text with tool calls", tags_ms, of_tags, text),
    ):
        ids = tokenizer.encode(sample, add_special_tokens=False)
        print(f"{name}: compiled in {ms:.1f} ms; a mask: {fill_times(make(), ids, words)}")

    cases = [
        Case("none bound", 0, None),
        Case("one bound by a schema", 1, of_schema),
        Case("one bound by tool tags", 1, of_tags),
        Case(f"one with a mask of {SLOW_MASK_S * 1e3:.0f} ms", 1, lambda: SlowMask(of_schema())),
        Case("all bound by a schema", options.streams, of_schema),
    ]
    load = Workload(options.streams, options.prompt, options.new, vocab_size)
    decode_speed(loaded, config, Workload(options.streams, 16, 4, vocab_size), cases[0])  # warms caches and code
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for case in cases:
            speed = decode_speed(loaded, config, load, case)
            best[case.name] = max(speed, best.get(case.name, speed))
    print(f"\n{path.name}, {options.threads} threads, {options.streams} streams, {options.new} tokens each\n")
    print("| case | the others, tok/s each | to none bound | the bound one, tok/s |\n| --- | --- | --- | --- |")
    free = best[cases[0].name][0] / options.streams
    for case in cases:
        counted = options.streams - case.bound or options.streams
        each = best[case.name][0] / counted
        held = f"{best[case.name][1]:.1f}" if case.bound else ""
        print(f"| {case.name} | {each:.1f} | {each / free:.2f}x | {held} |")


if __name__ == "__main__":
    main()
