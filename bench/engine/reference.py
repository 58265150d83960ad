#!/usr/bin/env python3
"""The torch engine beside transformers on the same file, in one run: prefill and decode tokens per second.

    python bench/engine/reference.py                  # SmolLM2-135M, float32, 1, 4 and 16 streams
    python bench/engine/reference.py --dtype bfloat16 --streams 1,4

Both compute the same workload in the same process in turns; a figure is the best of the rounds. transformers runs all
streams as one batch without padding, which is its best case. Compare the ratios: absolute figures drift with whatever
else the machine does.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from speed import Contender, Speed, Workload, compare, engine_contender
from transformers import AutoModelForCausalLM

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from providers.local.model_source import fetch


def transformers_contender(path: Path, dtype: str) -> Contender:
    """transformers' own model of a GGUF file or a folder of safetensors, with its own KV cache."""
    source, extra = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype), **extra).eval()

    @torch.inference_mode()
    def run(load: Workload) -> Speed:
        prompts = torch.tensor(load.prompts())
        begin = time.perf_counter()
        output = model(prompts, use_cache=True, logits_to_keep=1)
        tokens = output.logits[:, -1].argmax(-1, keepdim=True)
        prefilled = time.perf_counter()
        for _ in range(load.new_tokens - 1):
            output = model(tokens, past_key_values=output.past_key_values, use_cache=True)
            tokens = output.logits[:, -1].argmax(-1, keepdim=True)
        return Speed.of(load, prefilled - begin, time.perf_counter() - prefilled)

    return Contender("transformers", run)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a .gguf file or a safetensors folder; default: SmolLM2-135M")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--streams", default="1,4,16", help="how many at a time, separated by commas")
    parser.add_argument("--prompt", type=int, default=256, metavar="TOKENS", help="of each prompt")
    parser.add_argument("--new", type=int, default=32, metavar="TOKENS", help="of each answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    path = options.model or fetch("smollm2-135m-instruct")
    config = EngineConfig(dtype=options.dtype, prefix_cache=False)
    loaded = load_model(path, config)
    vocab_size = loaded.info.config.vocab_size
    loads = [Workload(int(count), options.prompt, options.new, vocab_size) for count in options.streams.split(",")]
    contenders = [engine_contender("engine", loaded, config), transformers_contender(path, options.dtype)]
    for contender in contenders:
        contender.run(Workload(1, 16, 4, vocab_size))  # warms caches and code
    print(
        f"{path.name}, {options.dtype}, {options.threads} threads, {options.prompt} + {options.new} tokens a stream\n"
    )
    print(compare(contenders, loads, options.rounds))


if __name__ == "__main__":
    main()
