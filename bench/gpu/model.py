"""A decoder of a shape with random weights on the engine, and how long its steps take."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from costs import Sizes
from machine import Machine
from torch import Tensor

from local_engine.config import EngineConfig, ModelConfig
from local_engine.engine import Engine
from local_engine.errors import EngineError
from local_engine.generation import GenerationRequest
from local_engine.kernels.gpu.loading import load_fused
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.load import LoadedModel, ModelInfo
from local_engine.loading.repacked.rounded import rounded_fp8_matrix
from local_engine.loading.weights import StoredRows
from local_engine.sampling import SamplingDefaults, SamplingParams

__all__ = ["decode_seconds", "engine_of", "prefill_seconds"]

_PROMPT = 256


class RandomSource:
    """Implements `TensorSource`: a file that never was. fp8: matrices are stored in 8 bits."""

    path = Path("random")

    def __init__(self, s: Sizes, *, fp8: bool) -> None:
        self._fp8 = fp8
        queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
        layer = {
            "input_layernorm": (s.hidden,),
            "post_attention_layernorm": (s.hidden,),
            "self_attn.q_proj": (queries, s.hidden),
            "self_attn.k_proj": (keys, s.hidden),
            "self_attn.v_proj": (keys, s.hidden),
            "self_attn.o_proj": (s.hidden, queries),
            "mlp.gate_proj": (s.width, s.hidden),
            "mlp.up_proj": (s.width, s.hidden),
            "mlp.down_proj": (s.hidden, s.width),
        }
        self.shapes: Mapping[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (s.vocab, s.hidden),
            "lm_head.weight": (s.vocab, s.hidden),
            "model.norm.weight": (s.hidden,),
        } | {f"model.layers.{index}.{name}.weight": shape for index in range(s.layers) for name, shape in layer.items()}

    def num_bytes(self, name: str) -> int:
        return 1

    def stored_name(self, name: str) -> str:
        return name

    def read_into(self, name: str, out: Tensor, share: Share = WHOLE) -> None:
        if out.ndim == 1:
            out.fill_(1.0)
        else:
            out.normal_(std=out.shape[1] ** -0.5)

    def quantized(self, name: str, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        if not self._fp8:
            return None
        weight = torch.empty(self.shapes[name], dtype=torch.bfloat16, device=device)
        self.read_into(name, weight)
        return rounded_fp8_matrix(weight)

    def stored_rows(self, name: str) -> StoredRows | None:
        return None


@contextmanager
def engine_of(s: Sizes, kind: str, config: EngineConfig) -> Iterator[Engine]:
    """An engine over the shape with weights of that kind: bf16, int8, int4 or fp8."""
    shape = ModelConfig("llama", s.vocab, s.hidden, s.width, s.layers, s.heads, s.kv_heads, s.head_dim, 16_384)
    fused = load_fused(RandomSource(s, fp8=kind == "fp8"), shape, config)
    if fused is None:
        raise SystemExit("the GPU kernels do not run on this device; the log says why")
    info = ModelInfo(Path("random"), shape, (), SamplingDefaults())
    engine = Engine(LoadedModel(fused.open_executor, fused.read_adapter, info), config)
    try:
        yield engine
    finally:
        engine.close()
        del engine, fused
        if config.on_gpu:
            torch.cuda.empty_cache()


def decode_seconds(engine: Engine, machine: Machine, *, streams: int, steps: int) -> tuple[float, float]:
    """The mean time of a step in which so many sequences decode, and their mean length in it."""
    length = min(_PROMPT, engine.max_context // 2) if not machine.quick else 4
    sampling = SamplingParams(temperature=0.0, max_tokens=steps + 20, ignore_eos=True)
    for stream in range(streams):
        engine.add(GenerationRequest("r", _prompt(engine, length, stream), sampling))
    while engine.scheduler.waiting or any(sequence.num_generated < 2 for sequence in engine.scheduler.running):
        _step(engine)
    begun = engine.stats().generated_tokens
    seconds = machine.plain_seconds(lambda: _step(engine), times=steps)
    past = sum(sequence.length for sequence in engine.scheduler.running) / streams - steps / 2
    made = engine.stats().generated_tokens - begun
    if made != streams * (1 + (1 if machine.quick else steps)):
        raise SystemExit(f"{made} tokens were made, not one a stream and step")
    for sequence in list(engine.scheduler.running):
        engine.abort(sequence)
    while engine.has_work:
        _step(engine)
    return seconds, past


def prefill_seconds(engine: Engine, machine: Machine, *, tokens: int) -> float:
    """From a prompt's arrival to its first token. The prefix cache must be off."""
    sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)

    def once() -> None:
        engine.add(GenerationRequest("r", _prompt(engine, tokens, 5), sampling))
        while engine.has_work:
            _step(engine)

    return machine.plain_seconds(once, times=3)


def _step(engine: Engine) -> None:
    for _, event in engine.step():
        if isinstance(event, EngineError):
            raise event


def _prompt(engine: Engine, length: int, seed: int) -> tuple[int, ...]:
    return tuple((7919 * (index + 1) * (seed + 3)) % engine.vocab_size for index in range(length))
