"""What an operator may set about the engine, and what a model file says about its shape.

Imports no torch: both can be built and checked in a process that never loads a model.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from local_engine.errors import InvalidInput

__all__ = ["DType", "EngineConfig", "ModelConfig", "RopeConfig", "RopeScaling"]

DType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How one engine runs. Raises InvalidInput naming the field that is out of range.

    threads: torch threads of a step; None keeps torch's own choice, one a physical core.
    kv_bytes: size of the KV pool over all layers. Memory is touched only as sequences fill it.
    max_batch_tokens: tokens one step computes at most. Sequences that decode come first, one token each; prompts are
        prefilled in chunks with what is left. A larger budget prefills a little faster and makes the gap between two
        tokens of a running stream longer: 256 tokens of a 135M model are about 0.15 s on two CPU cores.
    max_sequences: sequences that hold KV blocks at once.
    queue: requests that may wait beyond them; one more is refused with QueueFull.
    max_context: a smaller window than the model's; None takes the model's.
    prefix_cache: keep full KV blocks until the pool needs them, for prompts that begin alike.
    delivery_tokens: tokens a stream may have undelivered before its sequence pauses for its reader.
    """

    device: str = "cpu"
    dtype: DType = "float32"
    threads: int | None = None
    block_size: int = 16
    kv_bytes: int = 1 << 30
    max_batch_tokens: int = 256
    max_sequences: int = 256
    queue: int = 1024
    max_context: int | None = None
    prefix_cache: bool = True
    delivery_tokens: int = 256

    def __post_init__(self) -> None:
        if self.dtype not in get_args(DType):
            raise InvalidInput("dtype", f"must be one of {', '.join(get_args(DType))}, not {self.dtype!r}")
        for name, value, low, high in (
            ("threads", 1 if self.threads is None else self.threads, 1, 1024),
            ("block_size", self.block_size, 1, 1024),
            ("kv_bytes", self.kv_bytes, 1, 1 << 50),
            ("max_batch_tokens", self.max_batch_tokens, 1, 1 << 20),
            ("max_sequences", self.max_sequences, 1, 1 << 16),
            ("queue", self.queue, 0, 1 << 20),
            ("max_context", 2 if self.max_context is None else self.max_context, 2, 1 << 31),
            ("delivery_tokens", self.delivery_tokens, 1, 1 << 20),
        ):
            if type(value) is not int or not low <= value <= high:
                raise InvalidInput(name, f"must be an integer from {low} to {high}, not {value!r}")


RopeScaling = Literal["none", "linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base frequency and how it is stretched beyond the trained window.

    beta_fast, beta_slow: turns within the trained window from which yarn keeps a frequency, and to which it divides it.
    attention_factor: what yarn multiplies the turned queries and keys with.
    """

    theta: float = 10000.0
    scaling: RopeScaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_context: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder. `problem` says what is impossible about it; loaders refuse such a file.

    qkv_bias, output_bias, mlp_bias: which of the linear layers add one.
    qk_norm: queries and keys are normalised head by head before they turn.
    sliding_window: tokens that a token sees in every layer, itself included; None is all before it.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    rms_norm_eps: float = 1e-5
    rope: RopeConfig = RopeConfig()
    tie_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None. Files are untrusted: every number is checked."""
        for name, value, high in (
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 20),
            ("intermediate_size", self.intermediate_size, 1 << 22),
            ("num_layers", self.num_layers, 1 << 12),
            ("num_heads", self.num_heads, 1 << 14),
            ("num_kv_heads", self.num_kv_heads, 1 << 14),
            ("head_dim", self.head_dim, 1 << 12),
            ("max_context", self.max_context, 1 << 31),
            ("rope original_max_context", self.rope.original_max_context, 1 << 31),
            ("sliding_window", 1 if self.sliding_window is None else self.sliding_window, 1 << 31),
        ):
            if not 1 <= value <= high:
                return f"{name} is {value}, expected 1 to {high}"
        if self.num_heads % self.num_kv_heads:
            return f"{self.num_heads} query heads do not divide over {self.num_kv_heads} kv heads"
        if self.head_dim % 2:
            return f"head_dim is {self.head_dim}, rotary embedding needs an even one"
        rope = self.rope
        for name, number in (
            ("rms_norm_eps", self.rms_norm_eps),
            ("rope theta", rope.theta),
            ("rope factor", rope.factor),
            ("rope low_freq_factor", rope.low_freq_factor),
            ("rope high_freq_factor", rope.high_freq_factor),
            ("rope attention_factor", rope.attention_factor),
        ):
            if not (math.isfinite(number) and number > 0):
                return f"{name} is {number}, expected a positive number"
        if rope.scaling == "llama3" and rope.high_freq_factor <= rope.low_freq_factor:
            return "rope high_freq_factor must exceed low_freq_factor"
        if rope.scaling == "yarn" and not 2**-20 <= rope.beta_slow < rope.beta_fast <= 2**20:
            return f"rope beta_fast {rope.beta_fast} must exceed beta_slow {rope.beta_slow}"
        if rope.scaling == "yarn" and rope.theta <= 1:
            return f"rope theta is {rope.theta}, yarn needs more than 1"
        return None
