"""Embeddings: texts in, one vector each out. Unset is None; only a provider applies a default."""

from collections.abc import Mapping

from msgspec import Struct

from adapters.canonical.request import Prompt
from adapters.canonical.usage import Usage

__all__ = ["CUT_TO_WINDOW", "EmbeddingRequest", "EmbeddingResult"]

CUT_TO_WINDOW = -1
"""As `truncate_prompt_tokens`: whatever fits."""


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """`inputs` are texts or token ids; `dimensions` None leaves the model's own size.

    `truncate_prompt_tokens`: longer inputs are cut at their end to so many tokens, where otherwise they are refused.
    `base64` is how the client wants its vectors written, which is no provider's business.
    """

    model: str
    dialect: str
    inputs: tuple[Prompt, ...]
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    user: str | None = None
    base64: bool = False
    request_id: str | None = None
    extras: Mapping[str, bytes] = {}
    """Fields of the client's dialect that we do not map, raw."""


class EmbeddingResult(Struct, frozen=True, kw_only=True):
    """`vectors` in the order of the inputs, each little-endian float32 bytes. `request_id` is the upstream's."""

    vectors: tuple[bytes, ...]
    usage: Usage | None = None
    request_id: str | None = None
