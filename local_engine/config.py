"""What an operator may set about the engine, and what a model file says about its shape.

Imports no torch: both can be built and checked in a process that never loads a model.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from local_engine.attention_config import AttentionKind, Sections, Window
from local_engine.errors import InvalidInput
from local_engine.layer_config import LLAMA_BLOCK, BlockConfig, ExpertsConfig, LatentConfig
from local_engine.recurrent_config import RecurrentConfig
from local_engine.vision_config import VisionConfig

__all__ = [
    "MAX_LAYERS",
    "CpuInstructionSet",
    "DType",
    "EngineConfig",
    "KVDType",
    "ModelConfig",
    "WeightKind",
]

DType = Literal["auto", "float32", "bfloat16", "float16"]
WeightKind = Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"]
CpuInstructionSet = Literal["auto", "avx512bf16", "avx512", "avx2vnni", "avx2", "neon", "portable"]
KVDType = Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"]

MAX_LAYERS = 1 << 12
MAX_EXPERTS = 1 << 17


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How one engine runs. Raises InvalidInput naming the field that is out of range.

    dtype: what torch computes in. auto: a CPU runs its fused kernels where they can run the model, and else float32;
        a GPU computes in bfloat16.
    weights: auto keeps matrices as the file has them where kernels compute with them so, and else makes them `dtype`.
        int8 and int4 round those that the file has as floats, which the fused kernels alone do. A float type is the
        same as this `dtype`.
    cpu_instruction_set: of the fused kernels; auto is the best one that the CPU has.
    threads: of a step; None is one a physical core.
    kv_bytes: size of the KV pool over all layers. Memory is touched as sequences fill it; with the fused kernels up to
        128 MB ahead.
    kv_share: on a GPU, the part of its free memory that the pool takes in place of kv_bytes.
    kv_dtype: what keys and values are kept in; auto is bfloat16 with the fused kernels, and else what torch computes
        in. fp8 (e4m3) and int8 have a scale a head and token.
    max_batch_tokens: tokens one step computes at most. Sequences that decode come first, one token each; prompts are
        prefilled in chunks with what is left. A larger budget prefills a little faster and makes the gap between two
        tokens of a running stream longer: 256 tokens of a 135M model are about 0.15 s on two CPU cores.
    max_sequences: sequences that hold KV blocks at once.
    queue: requests that may wait beyond them; one more is refused with QueueFull.
    max_context: a smaller window than the model's; None takes the model's.
    prefix_cache: keep full KV blocks until the pool needs them, for prompts that begin alike.
    delivery_tokens: tokens a stream may have undelivered before its sequence pauses for its reader.
    cache_folder: where it is kept which variants of kernels are fastest on this machine's GPU; None is nowhere.
    recorded_steps: on a GPU, steps that only decode are recorded when the engine opens, and launched with one call.
    deterministic: on a GPU, what a row yields does not depend on the rows beside it, nor on how a prompt is cut. On a
        CPU that is so anyway.
    tf32: on a GPU in float32, matrices are multiplied with mantissas of 10 bits.
    tensor_parallel: processes that share the model, each on a GPU of its own; auto is as many as there are GPUs that
        it can be shared by evenly. On a CPU, auto is one.
    draft_tokens: tokens guessed at a time for each sequence that decodes, and verified in one step; 0 guesses none.
    draft_kv_bytes: size of the KV pool of the model that guesses, where there is one.
    """

    device: str = "cpu"
    dtype: DType = "auto"
    weights: WeightKind = "auto"
    cpu_instruction_set: CpuInstructionSet = "auto"
    threads: int | None = None
    block_size: int = 16
    kv_bytes: int = 1 << 30
    kv_share: float | None = None
    kv_dtype: KVDType = "auto"
    max_batch_tokens: int = 256
    max_sequences: int = 256
    queue: int = 1024
    max_context: int | None = None
    prefix_cache: bool = True
    delivery_tokens: int = 256
    cache_folder: str | None = None
    recorded_steps: bool = True
    deterministic: bool = False
    tf32: bool = False
    tensor_parallel: int | Literal["auto"] = 1
    draft_tokens: int = 0
    draft_kv_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name, value, known in (
            ("dtype", self.dtype, get_args(DType)),
            ("weights", self.weights, get_args(WeightKind)),
            ("cpu_instruction_set", self.cpu_instruction_set, get_args(CpuInstructionSet)),
            ("kv_dtype", self.kv_dtype, get_args(KVDType)),
        ):
            if value not in known:
                raise InvalidInput(name, f"must be one of {', '.join(known)}, not {value!r}")
        if self.weights != "auto" and self.dtype not in ("auto", self.weights):
            raise InvalidInput("weights", f"{self.weights} does not go with dtype {self.dtype}: leave one of them out")
        if self.kv_share is not None and not 0 < self.kv_share <= 1:
            raise InvalidInput("kv_share", f"must be above 0 and at most 1, not {self.kv_share!r}")
        for name, number, low, high in (
            ("threads", 1 if self.threads is None else self.threads, 1, 1024),
            ("block_size", self.block_size, 1, 1024),
            ("kv_bytes", self.kv_bytes, 1, 1 << 50),
            ("max_batch_tokens", self.max_batch_tokens, 1, 1 << 20),
            ("max_sequences", self.max_sequences, 1, 1 << 16),
            ("queue", self.queue, 0, 1 << 20),
            ("max_context", 2 if self.max_context is None else self.max_context, 2, 1 << 31),
            ("delivery_tokens", self.delivery_tokens, 1, 1 << 20),
            ("tensor_parallel", 1 if self.tensor_parallel == "auto" else self.tensor_parallel, 1, 64),
            ("draft_tokens", self.draft_tokens, 0, 64),
            ("draft_kv_bytes", self.draft_kv_bytes, 1, 1 << 50),
        ):
            if type(number) is not int or not low <= number <= high:
                raise InvalidInput(name, f"must be an integer from {low} to {high}, not {number!r}")

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def float_dtype(self) -> str:
        """What torch computes in: `dtype` with auto resolved."""
        if self.dtype != "auto":
            return self.dtype
        if self.weights in ("float32", "bfloat16", "float16"):
            return self.weights
        return "bfloat16" if self.on_gpu else "float32"

    @property
    def wants_kernels(self) -> bool:
        """Fused kernels may run the model: nothing asks for torch."""
        return self.dtype == "auto" and self.weights in ("auto", "int8", "int4")

    @property
    def stored_kv_dtype(self) -> str:
        """What torch keeps keys and values in: `kv_dtype` with auto resolved."""
        return self.float_dtype if self.kv_dtype == "auto" else self.kv_dtype


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder. `problem` says what is impossible about it; loaders refuse such a file.

    block: the frame of a layer.
    attention_kinds: the distinct kinds of layers, as regards attention.
    layer_pattern: for each layer the index of its kind; begun again where there are more layers than items.
    attention_scale: what scores are multiplied with; None is 1 / sqrt(head_dim).
    attention_soft_cap, logits_soft_cap: c bounds scores, or logits, as c * tanh(x / c); None leaves them.
    predicting_layers: layers behind the last one in the file, for guesses of further tokens; nothing computes them.
    qkv_bias, output_bias, mlp_bias: which of the linear layers add one.
    qk_norm: queries and keys are normalised before they turn: head by head, or all heads of a row as one vector.
        turned_heads: head by head, after it. value_norm: values are so too, head by head, without weights.
    attention_sinks: every query head has a logit that takes part in the softmax and has no value.
    attention_gate: behind the rows of each query head q_proj has those of a gate of what the head has read.
    default_context: the window that is served where run.yaml asks for none; None is max_context.
    borrowing_layers: the last so many have no keys and values: each reads those of the last layer of its kind before
        them. borrowing_width: their intermediate_size, where it is another.
    latent: of attention over compressed vectors, for which the cache has one kv head of `head_dim` numbers.
    experts: of the layers that have them instead of one feed-forward block.
    recurrent: of the layers that have a state of a fixed size in place of attention; attention_beside: beside it.
    mlp_layers: those that are a feed-forward block alone; where there are some, the others have none.
    fused_qkv, fused_gate_up: files have Q, K and V as one tensor; gate and up as one.
    row_factors: names of parts of layers, and by what the rows of their tensors in transformers' files are multiplied.
    interleaved_heads: transformers' files have rows of Q and K pair by pair, see `loading.interleaved`.
    vision: of a model that reads images.
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
    default_context: int | None = None
    rms_norm_eps: float = 1e-5
    block: BlockConfig = LLAMA_BLOCK
    attention_kinds: tuple[AttentionKind, ...] = (AttentionKind(),)
    layer_pattern: tuple[int, ...] = (0,)
    attention_scale: float | None = None
    attention_soft_cap: float | None = None
    logits_soft_cap: float | None = None
    predicting_layers: int = 0
    tie_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["heads", "turned_heads", "row"] | None = None
    value_norm: bool = False
    borrowing_layers: int = 0
    borrowing_width: int | None = None
    fused_qkv: bool = False
    fused_gate_up: bool = False
    row_factors: tuple[tuple[str, tuple[tuple[int, float], ...]], ...] = ()
    interleaved_heads: bool = False
    attention_sinks: bool = False
    attention_gate: bool = False
    latent: LatentConfig | None = None
    experts: ExpertsConfig | None = None
    recurrent: RecurrentConfig | None = None
    attention_beside: bool = False
    mlp_layers: frozenset[int] = frozenset()
    vision: VisionConfig | None = None

    def kind_of(self, layer: int) -> int:
        """The index of a layer's attention kind."""
        return self.layer_pattern[layer % len(self.layer_pattern)]

    def with_layers(self, kind_of: Callable[[int], AttentionKind]) -> "ModelConfig":
        """The same shape, with the kind that `kind_of` gives for each layer's index."""
        # Files are untrusted: no list is as long as one says before `problem` has seen the number.
        kinds = [kind_of(index) for index in range(min(self.num_layers, MAX_LAYERS))]
        distinct = tuple(dict.fromkeys(kinds))
        numbers = {kind: number for number, kind in enumerate(distinct)}
        return replace(self, attention_kinds=distinct, layer_pattern=tuple(numbers[kind] for kind in kinds))

    def is_recurrent(self, layer: int) -> bool:
        """The layer has a state, in place of attention or beside it."""
        return self.recurrent is not None and layer in self.recurrent.layers

    def attends(self, layer: int) -> bool:
        """The layer has attention."""
        return layer not in self.mlp_layers and (self.attention_beside or not self.is_recurrent(layer))

    def feeds_forward(self, layer: int) -> bool:
        """The layer has a feed-forward block."""
        return not self.mlp_layers or layer in self.mlp_layers

    def borrows(self, layer: int) -> bool:
        """The layer reads the keys and values of another."""
        return layer >= self.num_layers - self.borrowing_layers

    @property
    def caching_layers(self) -> tuple[int, ...]:
        """The layers with keys and values of their own, each of which has a cache."""
        layers = range(self.num_layers - self.borrowing_layers)
        return tuple(filter(self.attends, layers))

    def cache_of(self, layer: int) -> int:
        """Which of the caches the attention of a layer reads."""
        lenders = self.caching_layers
        kind = self.kind_of(layer)
        lender = max(index for index in lenders if self.kind_of(index) == kind) if self.borrows(layer) else layer
        return lenders.index(lender)

    def of_layer(self, layer: int) -> "ModelConfig":
        """The shape as one layer has it: its heads and its width."""
        kind = self.attention_kinds[self.kind_of(layer)]
        return replace(
            self,
            head_dim=kind.head_dim or self.head_dim,
            num_kv_heads=kind.num_kv_heads or self.num_kv_heads,
            intermediate_size=self.borrowing_width
            if self.borrows(layer) and self.borrowing_width
            else self.intermediate_size,
        )

    @property
    def uneven(self) -> bool:
        """Layers differ in their heads, or read one another's keys and values."""
        return self.borrowing_layers > 0 or any(kind.head_dim or kind.num_kv_heads for kind in self.attention_kinds)

    @property
    def grows(self) -> bool:
        """Within the window there are positions at which queries have grown."""
        growths = [kind.query_growth for kind in self.attention_kinds if kind.query_growth is not None]
        return any(self.max_context + growth.offset > growth.length for growth in growths)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The distinct windows of all layers."""
        return tuple(dict.fromkeys(kind.reach for kind in self.attention_kinds))

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None. Files are untrusted: every number is checked."""
        for name, value, high in (
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 20),
            ("intermediate_size", self.intermediate_size, 1 << 22),
            ("num_layers", self.num_layers, MAX_LAYERS),
            ("number of predicting layers", self.predicting_layers + 1, MAX_LAYERS),
            ("num_heads", self.num_heads, 1 << 14),
            ("num_kv_heads", self.num_kv_heads, 1 << 14),
            ("head_dim", self.head_dim, 1 << 12),
            ("width of layers that borrow keys and values", self.borrowing_width or 1, 1 << 22),
            ("max_context", self.max_context, 1 << 31),
            *(("sliding_window", window, 1 << 31) for window in self.windows if isinstance(window, int)),
            *(
                ("attention_chunk_size", window.size, 1 << 31)
                for window in self.windows
                if isinstance(window, Sections)
            ),
        ):
            if not 1 <= value <= high:
                return f"{name} is {value}, expected 1 to {high}"
        if problem := self._heads_problem():
            return problem
        for name, number in (
            ("rms_norm_eps", self.rms_norm_eps),
            ("attention_scale", 1.0 if self.attention_scale is None else self.attention_scale),
            ("attention_soft_cap", 1.0 if self.attention_soft_cap is None else self.attention_soft_cap),
            ("logits_soft_cap", 1.0 if self.logits_soft_cap is None else self.logits_soft_cap),
        ):
            if not (math.isfinite(number) and number > 0):
                return f"{name} is {number}, expected a positive number"
        if problem := self.block.problem() or (self.latent.problem() if self.latent is not None else None):
            return problem
        if self.experts is not None:
            if problem := self.experts.problem():
                return problem
            if self.experts.count * self.num_layers > MAX_EXPERTS:
                return f"{self.experts.count} experts in {self.num_layers} layers, expected at most {MAX_EXPERTS}"
        if problem := self._layers_problem():
            return problem
        if self.vision is not None:
            if problem := self.vision.problem(self.vocab_size):
                return problem
            ropes = [kind.rope for kind in self.attention_kinds if kind.rope is not None]
            if self.vision.qwen is not None and not all(rope.mrope_sections for rope in ropes):
                return "the model reads images of any size, and its rope has no mrope_section"
            if self.vision.num_stacked > self.num_layers:
                return f"{self.vision.num_stacked} deepstack layers for {self.num_layers} layers of the decoder"
        return None

    def _layers_problem(self) -> str | None:
        recurrent = frozenset() if self.recurrent is None else self.recurrent.layers
        layers = frozenset(range(self.num_layers))
        if not (self.mlp_layers <= layers and recurrent <= layers) or recurrent & self.mlp_layers:
            return f"recurrent layers and feed-forward layers are not apart among {self.num_layers} layers"
        if not self.caching_layers:
            return f"{len(recurrent)} recurrent layers of {self.num_layers}, expected that some layers have attention"
        return None if self.recurrent is None else self.recurrent.problem()

    def _heads_problem(self) -> str | None:
        for kind in self.attention_kinds:
            head_dim, kv_heads = kind.head_dim or self.head_dim, kind.num_kv_heads or self.num_kv_heads
            if not 1 <= kv_heads <= self.num_heads or self.num_heads % kv_heads:
                return f"{self.num_heads} query heads do not divide over {kv_heads} kv heads"
            if not 1 <= head_dim <= 1 << 12 or head_dim % 2:
                return f"head_dim is {head_dim}, rotary embedding needs an even one up to {1 << 12}"
            if kind.rope is not None and (problem := kind.rope.problem(head_dim)):
                return problem
            if (growth := kind.query_growth) and not (growth.length >= 1 and 0 <= growth.rate <= 1 << 10):
                return f"queries grow by {growth.rate} every {growth.length} tokens"
        if not 0 <= self.borrowing_layers < self.num_layers:
            return f"{self.borrowing_layers} of {self.num_layers} layers have no keys and values"
        first = self.num_layers - self.borrowing_layers
        if not {self.kind_of(index) for index in range(first, self.num_layers)} <= set(map(self.kind_of, range(first))):
            return "layers without keys and values have none of their kind before them"
        return None
