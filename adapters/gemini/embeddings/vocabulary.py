"""Words of Gemini's embeddings, on both sides: the dialect's name and what vectors may be for."""

from adapters.canonical.embedding import (
    CLASSIFICATION,
    CLUSTERING,
    CODE_QUERY,
    DOCUMENT,
    FACT,
    QUERY,
    QUESTION,
    SIMILARITY,
)

__all__ = ["EMBED", "PURPOSES", "SPELLINGS", "TASKS"]

EMBED = "gemini.embed_content"

PURPOSES = {
    "RETRIEVAL_QUERY": QUERY,
    "RETRIEVAL_DOCUMENT": DOCUMENT,
    "SEMANTIC_SIMILARITY": SIMILARITY,
    "CLASSIFICATION": CLASSIFICATION,
    "CLUSTERING": CLUSTERING,
    "QUESTION_ANSWERING": QUESTION,
    "FACT_VERIFICATION": FACT,
    "CODE_RETRIEVAL_QUERY": CODE_QUERY,
}
TASKS = {purpose: word for word, purpose in PURPOSES.items()}

SPELLINGS = {
    "dimensions": "outputDimensionality",
    "purpose": "taskType",
    "titles": "title",
    "truncate_prompt_tokens": "autoTruncate",
}
"""The client's spelling of canonical fields that differ."""
