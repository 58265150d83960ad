"""POST /model/{model}/invoke, in the words of each model's maker: where it is, and what its headers tell."""

from collections.abc import Mapping

from adapters.canonical.usage import Usage
from adapters.model_path import model_path

__all__ = ["invocation_path", "told_usage"]

_TOKENS_HEADER = "x-amzn-bedrock-input-token-count"


def invocation_path(model: str) -> str:
    return f"/model/{model_path(model)}/invoke"


def told_usage(headers: Mapping[str, str]) -> Usage | None:
    """The tokens of the prompt; None where the headers do not say."""
    told = headers.get(_TOKENS_HEADER, "")
    return Usage(prompt_tokens=int(told[:12])) if told.isascii() and told.isdigit() else None
