"""What vectors are for in Cohere's words, which hosts of its models pass on."""

from adapters.canonical.embedding import CLASSIFICATION, CLUSTERING, DOCUMENT, QUERY, EmbeddingRequest
from adapters.canonical.errors import UnsupportedParameter

__all__ = ["PURPOSES", "input_type"]

_INPUT_TYPES = {
    QUERY: "search_query",
    DOCUMENT: "search_document",
    CLASSIFICATION: "classification",
    CLUSTERING: "clustering",
}
PURPOSES = {word: purpose for purpose, word in _INPUT_TYPES.items()}


def input_type(request: EmbeddingRequest) -> str:
    """Models from the third generation on want to know: where nobody says, the vectors are for documents.

    Raises UnsupportedParameter for a purpose that Cohere has no word for.
    """
    purpose = request.purpose or DOCUMENT
    if purpose not in _INPUT_TYPES:
        raise UnsupportedParameter.at("purpose", f"Cohere has no vectors for {purpose}")
    return _INPUT_TYPES[purpose]
