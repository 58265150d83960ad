"""The operations that a fused decoder on a GPU is built of, as a table of callables: one row for each implementation.

What each computes stands with the kernels of `kernels.triton`, which bear the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from torch import Tensor, dtype

from local_engine.layers.kv_cache import LayerCache
from local_engine.layers.quantized_matrix import QuantizedMatrix

if TYPE_CHECKING:  # Triton is not everywhere
    from local_engine.kernels.triton.lora import LoraStack
    from local_engine.kernels.triton.row_groups import RowGroups

__all__ = ["Activation", "Choice", "HeadNorms", "Kernels", "StackedExperts"]

# gelu is the exact form by the error function, gelu_tanh its approximation, which Gemma was trained with;
# clamped_swiglu is gpt-oss's, and adds 1 to up.
Activation = Literal["silu", "gelu", "gelu_tanh", "clamped_swiglu"]


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The norms of query and key heads: weights [D], and what is added to the mean square."""

    queries: Tensor
    keys: Tensor
    eps: float


class Choice(NamedTuple):
    """What computes an operation, in words: `triton`, `torch`."""

    operation: str
    implementation: str


class AddRmsNorm(Protocol):
    def __call__(
        self,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        *,
        inner_weight: Tensor | None = None,
        weight_offset: float = 0.0,
    ) -> Tensor: ...


class GatedActivation(Protocol):
    def __call__(self, gate_up: Tensor, activation: Activation) -> Tensor: ...


class RopeKvWrite(Protocol):
    def __call__(
        self,
        qkv: Tensor,
        cache: LayerCache,
        slots: Tensor,
        *,
        angles: tuple[Tensor, Tensor] | None,
        norms: HeadNorms | None = None,
    ) -> Tensor: ...


class PagedDecode(Protocol):
    def __call__(
        self,
        queries: Tensor,
        cache: LayerCache,
        block_tables: Tensor,
        lengths: Tensor,
        *,
        block_size: int,
        splits: int = 1,
        scale: float | None = None,
        soft_cap: float | None = None,
        window: int | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor: ...


class PagedPrefill(Protocol):
    def __call__(
        self,
        queries: Tensor,
        cache: LayerCache,
        block_tables: Tensor,
        query_starts: Tensor,
        lengths: Tensor,
        *,
        max_queries: int,
        block_size: int,
        scale: float | None = None,
        soft_cap: float | None = None,
        window: int | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """The matrices of a layer's E experts, one dtype. gate_up: [E, 2 W, hidden], the gate's rows first.

    down: [E, hidden, W]. Biases: [E, 2 W] and [E, hidden], or None. activation, alpha, limit: see `gated_activation`.
    """

    gate_up: Tensor
    down: Tensor
    activation: Activation = "silu"
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    alpha: float = 1.702
    limit: float = 7.0


class SparseExpertsCall(Protocol):
    def __call__(
        self,
        x: Tensor,
        router_logits: Tensor,
        experts: StackedExperts,
        *,
        per_token: int,
        normalised: bool,
        block_size: int | None = None,
    ) -> Tensor: ...


class QuantizedMatmul(Protocol):
    def __call__(
        self, x: Tensor, matrix: QuantizedMatrix, *, bias: Tensor | None = None, splits: int = 1
    ) -> Tensor: ...


class GroupRows(Protocol):
    def __call__(self, owner_of: Tensor, num_owners: int, *, block_size: int) -> "RowGroups": ...


class AddLora(Protocol):
    def __call__(
        self, y: Tensor, x: Tensor, stack: "LoraStack", groups: "RowGroups", *, splits: int | None = None
    ) -> None: ...


class Embedding(Protocol):
    def __call__(self, token_ids: Tensor, table: Tensor, *, scale: float = 1.0, first_id: int = 0) -> Tensor: ...


class QuantizedEmbedding(Protocol):
    def __call__(
        self, token_ids: Tensor, matrix: QuantizedMatrix, dtype: dtype, *, scale: float = 1.0, first_id: int = 0
    ) -> Tensor: ...


class SelectedLogits(Protocol):
    def __call__(
        self,
        hidden: Tensor,
        rows: Tensor | None,
        head: Tensor | QuantizedMatrix,
        *,
        soft_cap: float | None = None,
        splits: int = 1,
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """One implementation of each. matmul_splits: of a quantized product, by its rows, outputs, inputs and the device's
    processors. fused_sampler: tokens are drawn by kernels too, else by the reference sampler.

    choices: the same in words, with what torch computes beside them.
    """

    add_rms_norm: AddRmsNorm
    gated_activation: GatedActivation
    rope_kv_write: RopeKvWrite
    paged_decode: PagedDecode
    paged_prefill: PagedPrefill
    quantized_matmul: QuantizedMatmul
    sparse_experts: SparseExpertsCall
    group_rows: GroupRows
    add_lora: AddLora
    embedding: Embedding
    quantized_embedding: QuantizedEmbedding
    selected_logits: SelectedLogits
    matmul_splits: Callable[[int, int, int, int], int]
    fused_sampler: bool
    choices: tuple[Choice, ...]
