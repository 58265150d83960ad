"""What the GPU kernels and the engine on them reach, against what the device can do: one run of some minutes.

    python bench/gpu/measure.py --json gpu.json     on a machine with an NVIDIA GPU
    python bench/gpu/measure.py --predict           bytes, operations and floors alone, by count
    python bench/gpu/measure.py --dry-run           all of the code on a CPU, interpreted, in sizes that mean nothing

Measures the bandwidth of a copy and the rate of a product first; checks every kernel against its twin; then times
kernels, decoding and prefill of an 8B shape with random weights in 16, 8 and 4 bits, and recorded steps against eager.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from costs import CHECKED, FULL, TINY, WEIGHT_BITS, kernel_costs, prediction, step_cost

_STREAMS, _PREFILLS, _STEPS = (1, 8, 64, 256), (512, 8192), 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.predict:
        print("\n".join(prediction()))
        return
    if arguments.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before any import of one
    begin = time.perf_counter()
    results = _measure(quick=arguments.dry_run)
    results["seconds"] = time.perf_counter() - begin
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\n{results['seconds']:.0f} s in all")
    if results["wrong"]:
        raise SystemExit(f"not equal to their twins: {', '.join(results['wrong'])}")


def _measure(*, quick: bool) -> dict[str, Any]:
    import torch
    from machine import Machine

    if not quick and not torch.cuda.is_available():
        raise SystemExit("no NVIDIA GPU is found; --dry-run needs none, --predict counts")
    torch.manual_seed(1)
    device = torch.device("cpu" if quick else "cuda")
    # The interpreter's products of bfloat16 are wrong.
    dtype = torch.float32 if quick else torch.bfloat16
    machine = Machine(device, quick=quick)
    name = "CPU, interpreted" if quick else torch.cuda.get_device_name(device)
    bandwidth, rate = machine.copy_bytes_per_s(), machine.matrix_operations_per_s(dtype)
    print(f"{name}: copies {bandwidth / 1e9:,.1f} GB/s, multiplies {rate / 1e12:,.3f} TFLOP/s in {dtype}\n")
    results: dict[str, Any] = {"device": name, "bytes_per_s": bandwidth, "operations_per_s": rate, "wrong": []}
    with torch.inference_mode():
        results["checks"] = _check(machine, dtype, results["wrong"])
        results["kernels"] = _time_kernels(machine, dtype, bandwidth, rate)
    results["steps"] = _time_steps(machine, bandwidth, rate)
    return results


def _check(machine: Any, dtype: Any, wrong: list[str]) -> list[dict[str, Any]]:
    from kernels import cases

    found = []
    for case in cases(TINY if machine.quick else CHECKED, machine.device, dtype, copies=1):
        got, expected = case.run(-1).double(), case.twin().double()
        error = float((got - expected).abs().max() / expected.abs().max().clamp_min(1e-9))
        if not error <= case.tolerance:
            wrong.append(case.name)
        found.append({"kernel": case.name, "error": error, "tolerance": case.tolerance})
    print(f"{len(found)} kernels held to their twins, {len(wrong)} of them wrong\n")
    return found


def _time_kernels(machine: Any, dtype: Any, bandwidth: float, rate: float) -> list[dict[str, Any]]:
    from kernels import cases

    sizes = TINY if machine.quick else FULL
    costs = kernel_costs(sizes)
    print(f"{'kernel':24} {'us':>10} {'GB/s':>9} {'TFLOP/s':>9} {'of the floor':>12}")
    found = []
    for case in cases(sizes, machine.device, dtype, copies=1 if machine.quick else 4):
        cost = costs[case.name]
        seconds = machine.seconds(case.run)
        share = cost.seconds(bandwidth, rate) / seconds
        gigabytes, teraflops = cost.num_bytes / seconds / 1e9, cost.operations / seconds / 1e12
        print(f"{case.name:24} {seconds * 1e6:10,.1f} {gigabytes:9,.1f} {teraflops:9,.2f} {share:12.0%}")
        found.append(
            {
                "kernel": case.name,
                "bound": case.bound,
                "seconds": seconds,
                "bytes": cost.num_bytes,
                "operations": cost.operations,
                "share_of_floor": share,
            }
        )
    if missing := set(costs) - {row["kernel"] for row in found}:
        raise SystemExit(f"no case for {', '.join(sorted(missing))}")
    return found


def _time_steps(machine: Any, bandwidth: float, rate: float) -> list[dict[str, Any]]:
    from model import decode_seconds, engine_of, prefill_seconds

    quick = machine.quick
    sizes = TINY if quick else FULL
    streams, prefills = ((2,), (5,)) if quick else (_STREAMS, _PREFILLS)
    print(f"\n{'step':24} {'weights':>8} {'ms':>9} {'floor':>9} {'of the floor':>12} {'tokens/s':>10}")
    found: list[dict[str, Any]] = []

    def report(words: str, kind: str, seconds: float, cost: Any, tokens: int) -> None:
        floor = cost.seconds(bandwidth, rate)
        share = floor / seconds
        print(f"{words:24} {kind:>8} {seconds * 1e3:9.2f} {floor * 1e3:9.3f} {share:12.0%} {tokens / seconds:10,.0f}")
        found.append({"step": words, "weights": kind, "seconds": seconds, "floor_s": floor, "share_of_floor": share})

    for kind in ("bf16", "int4", "fp8") if quick else WEIGHT_BITS:
        with engine_of(sizes, kind, _config(kind, quick=quick)) as engine:
            for count in streams:
                seconds, past = decode_seconds(engine, machine, streams=count, steps=1 if quick else _STEPS)
                cost = step_cost(sizes, kind, sequences=count, past=round(past))
                report(f"decode, {count} streams", kind, seconds, cost, count)
            for tokens in prefills:
                seconds = prefill_seconds(engine, machine, tokens=tokens)
                report(f"prefill, {tokens} tokens", kind, seconds, step_cost(
                    sizes, kind, sequences=1, past=0, tokens=tokens), tokens)  # fmt: skip
        if kind == "bf16":
            with engine_of(sizes, kind, _config(kind, quick=quick, recorded=False)) as engine:
                for count in streams[:3]:
                    seconds, past = decode_seconds(engine, machine, streams=count, steps=1 if quick else _STEPS)
                    cost = step_cost(sizes, kind, sequences=count, past=round(past))
                    report(f"the same, eager, {count}", kind, seconds, cost, count)
    return found


def _config(kind: str, *, quick: bool, recorded: bool = True) -> Any:
    from local_engine.config import EngineConfig

    weights: Any = kind if kind in ("int8", "int4") else "auto"
    if quick:
        return EngineConfig(
            weights=weights, kv_bytes=1 << 20, max_batch_tokens=16, max_sequences=2, prefix_cache=False,
            recorded_steps=recorded,
        )  # fmt: skip
    return EngineConfig(
        device="cuda", weights=weights, kv_share=0.6, max_batch_tokens=8192, max_sequences=256, prefix_cache=False,
        recorded_steps=recorded,
    )  # fmt: skip


if __name__ == "__main__":
    main()
