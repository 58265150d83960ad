#!/usr/bin/env python3
"""The engine on its CPU kernels beside llama.cpp (and transformers), in process and through HTTP, in one run.

    python bench/engine/compare.py --llama-cpp FOLDER             # builds llama.cpp there where it is missing
    python bench/engine/compare.py --llama-cpp FOLDER --transformers --model ./other.gguf

Contenders take turns within a round, and a figure is the best round: compare the ratios, since absolute figures drift
with whatever else the machine does. The bandwidth is measured between the rounds, with as many threads.
"""

import argparse
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import torch
from bandwidth import read_bandwidth
from http_load import HttpSpeed, free_port, measure, serving
from llama_cpp import build, llama_cpp_contender
from speed import Contender, Workload, compare, engine_contender

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.load import load_model
from providers.local.model_source import fetch

_CLIENTS = (1, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--llama-cpp", type=Path, metavar="FOLDER", help="where llama.cpp is, or shall be built")
    parser.add_argument("--model", type=Path, help="a .gguf file; default: SmolLM2-135M")
    parser.add_argument("--transformers", action="store_true", help="also run transformers, in bfloat16")
    parser.add_argument("--streams", default="1,4,16", help="how many at a time, separated by commas")
    parser.add_argument("--prompt", type=int, default=256, metavar="TOKENS", help="of each prompt")
    parser.add_argument("--new", type=int, default=64, metavar="TOKENS", help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-http", action="store_true")
    parser.add_argument("--no-guesses", action="store_true", help="through HTTP: `speculative: {kind: none}`")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    path = options.model or fetch("smollm2-135m-instruct")
    programs = None if options.llama_cpp is None else build(options.llama_cpp.resolve())
    config = EngineConfig(threads=options.threads, prefix_cache=False, max_batch_tokens=512)
    ours, vocab_size = _ours(path, config)
    contenders = [ours]
    if programs is not None:
        contenders.append(llama_cpp_contender(programs, path, options.threads))
    if options.transformers:
        from reference import transformers_contender

        contenders.append(transformers_contender(path, "bfloat16"))
    print(f"\n{path.name}, {options.threads} threads\n")
    decode = [Workload(int(count), options.prompt, options.new, vocab_size) for count in options.streams.split(",")]
    print(
        f"In process, {options.prompt} + {options.new} tokens a stream; read bandwidth {_bandwidth(options.threads)}\n"
    )
    print(compare(contenders, decode, options.rounds))
    print("\nOne prompt of 512 tokens\n")
    print(compare(contenders, [Workload(1, 512, 2, vocab_size)], options.rounds))
    print(f"\nRead bandwidth {_bandwidth(options.threads)}, file {path.stat().st_size / 1e6:.0f} MB")
    if programs is not None and not options.no_http:
        print(f"\nThrough HTTP, {options.new} tokens an answer\n")
        print(_through_http(path, programs, options))


def _ours(path: Path, config: EngineConfig) -> tuple[Contender, int]:
    begin = time.perf_counter()
    loaded = load_model(path, config)
    contender = engine_contender("engine", loaded, config)
    Engine(loaded, config)
    contender.run(Workload(1, 16, 2, loaded.info.config.vocab_size))
    print(f"from the load call to the first tokens: {time.perf_counter() - begin:.2f} s")
    return contender, loaded.info.config.vocab_size


def _bandwidth(threads: int) -> str:
    return f"{read_bandwidth(threads) / 1e9:.1f} GB/s"


def _through_http(path: Path, programs: Path, options: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = free_port(), free_port()
        run_yaml = Path(folder) / "run.yaml"
        model = f"{{source: {path.resolve()}{', speculative: {kind: none}' if options.no_guesses else ''}}}"
        run_yaml.write_text(
            textwrap.dedent(f"""\
                version: 1
                storage: {{url: memory}}
                server: {{port: {ours}}}
                providers:
                  local: {{type: local, threads: {options.threads}, models: {{m: {model}}}}}
                """)
        )
        gateway = [str(Path(sys.executable).with_name("gateway")), "--config", str(run_yaml)]
        server = [
            str(programs / "llama-server"),
            "-m",
            str(path),
            "-t",
            str(options.threads),
            "-tb",
            str(options.threads),
        ]
        server += ["--parallel", "16", "-c", "16384", "--host", "127.0.0.1", "--port", str(theirs), "--no-webui"]
        best: dict[tuple[str, int], HttpSpeed] = {}
        turn = 0
        for _ in range(options.rounds):
            # One after the other: a server that waits may still keep a core busy.
            for name, command, port, health in (
                ("gateway", gateway, ours, "/readyz"),
                ("llama-server", server, theirs, "/health"),
            ):
                with serving(command, port, health, Path(folder) / f"{name}.log"):
                    measure(port, "m", clients=1, tokens=8, words=20, turn=turn)
                    for clients in _CLIENTS:
                        turn += 1
                        speed = measure(
                            port, "m", clients=clients, tokens=options.new, words=options.prompt // 2, turn=turn
                        )
                        best[name, clients] = speed.best(best.get((name, clients), speed))
        return _http_table(best)


def _http_table(best: dict[tuple[str, int], HttpSpeed]) -> str:
    rows = ["| clients | | gateway | llama-server | ratio |", "| --- | --- | --- | --- | --- |"]
    for clients in _CLIENTS:
        ours, theirs = best["gateway", clients], best["llama-server", clients]
        tokens = f"{ours.tokens:,.0f} | {theirs.tokens:,.0f} | {ours.tokens / theirs.tokens:.2f}x"
        wait = f"{ours.ttft_ms:,.0f} | {theirs.ttft_ms:,.0f} | {ours.ttft_ms / theirs.ttft_ms:.2f}x"
        rows += [f"| {clients} | tokens/s | {tokens} |", f"| {clients} | TTFT p50, ms | {wait} |"]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
