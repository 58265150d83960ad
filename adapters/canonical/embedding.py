"""Embeddings: texts in, one vector each out. Unset is None; only a provider applies a default."""

from array import array
from collections.abc import Mapping, Sequence

from msgspec import Struct

from adapters.canonical.errors import BadUpstreamResponse, InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import Opaque
from adapters.canonical.request import Prompt
from adapters.canonical.usage import Usage

__all__ = [
    "CLASSIFICATION",
    "CLUSTERING",
    "CODE_QUERY",
    "CUT_TO_WINDOW",
    "DOCUMENT",
    "FACT",
    "QUERY",
    "QUESTION",
    "SIMILARITY",
    "EmbeddingRequest",
    "EmbeddingResult",
    "numbers",
    "packed",
    "prompts_of",
    "text_in",
    "texts_of",
]

CUT_TO_WINDOW = -1
"""As `truncate_prompt_tokens`: whatever fits."""

QUERY, DOCUMENT, SIMILARITY, CLASSIFICATION = "query", "document", "similarity", "classification"
CLUSTERING, QUESTION, FACT, CODE_QUERY = "clustering", "question", "fact", "code_query"


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """`inputs` are texts or token ids, or what the client's own dialect alone can read; `dimensions` None leaves the
    model's own size.

    `purpose` is what the vectors are for, one of the words above; `purpose_is_required`: the client's dialect makes
    everybody say it, so that it is left out, and listed, for a target that has no word for it. `titles` are those of
    the documents, one for each input. `truncate_prompt_tokens`: longer inputs are cut at their end to so many tokens,
    where otherwise they are refused; `cut_is_default`: the client said nothing of it, and its dialect cuts then.
    `base64` is how the client wants its vectors written, which is no provider's business.
    """

    model: str
    dialect: str
    inputs: tuple[Prompt | Opaque, ...]
    dimensions: int | None = None
    purpose: str | None = None
    purpose_is_required: bool = False
    titles: tuple[str | None, ...] | None = None
    truncate_prompt_tokens: int | None = None
    cut_is_default: bool = False
    keep_alive_s: float | None = None
    """See `Request.keep_alive_s`."""
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


def prompts_of(request: EmbeddingRequest) -> tuple[Prompt, ...]:
    """The inputs for what takes texts and token ids. Raises UnsupportedParameter for any other."""
    prompts = tuple([each for each in request.inputs if not isinstance(each, Opaque)])
    if len(prompts) != len(request.inputs):
        raise UnsupportedParameter.at("input", f"the model '{request.model}' takes texts alone")
    return prompts


def texts_of(request: EmbeddingRequest, vendor: str) -> list[str]:
    """The inputs for an API that takes texts alone. Raises InvalidRequest, naming `vendor`, for token ids."""
    return [text_in(each, vendor) for each in request.inputs]


def text_in(one: Prompt | Opaque, vendor: str) -> str:
    """The same for one input."""
    if not isinstance(one, str):
        raise InvalidRequest.at("input", f"{vendor} takes texts, not token ids")
    return one


def packed(rows: Sequence[Sequence[float]], inputs: int) -> tuple[bytes, ...]:
    """Rows of an upstream as vectors. Raises BadUpstreamResponse where they are not one for each input, of one size."""
    if len(rows) != inputs:
        raise BadUpstreamResponse(f"the upstream sent {len(rows)} embeddings for {inputs} inputs")
    if len(set(map(len, rows))) != 1 or not rows[0]:
        raise BadUpstreamResponse("the upstream sent embeddings of different sizes")
    return tuple([array("f", row).tobytes() for row in rows])


def numbers(vector: bytes) -> list[float]:
    return array("f", vector).tolist()
