"""What an upstream's failure is to us, whatever its dialect: the classes of HTTP statuses, and what a client may read.

A dialect's own codes and types are more specific and go before the status; they stand with the dialect.
"""

import re

from adapters.canonical.errors import (
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    Unprocessable,
    UpstreamAuth,
    UpstreamConflict,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)

__all__ = ["error_class_of", "given_up", "no_finish", "upstream_failure"]

_STATUSES: dict[int, type[GatewayError]] = {
    400: InvalidRequest,
    401: UpstreamAuth,
    402: UpstreamQuota,
    403: UpstreamAuth,
    404: ModelNotFound,
    405: UpstreamError,
    407: UpstreamError,
    408: UpstreamTimeout,
    409: UpstreamConflict,
    410: ModelNotFound,
    413: InvalidRequest,
    421: UpstreamError,
    422: Unprocessable,
    424: UpstreamError,
    425: UpstreamRateLimited,
    429: UpstreamRateLimited,
    499: UpstreamError,
    500: UpstreamInternal,
    503: UpstreamOverloaded,
    504: UpstreamTimeout,
    529: UpstreamOverloaded,
}
_PRIVATE: dict[type[GatewayError], str] = {
    # What concerns the gateway's own account is not the client's to read.
    UpstreamAuth: "the provider refused the gateway's credentials",
    UpstreamQuota: "the gateway's quota at the provider is exhausted",
}
_OVERFLOWS = (
    # How those who have no code for it tell of a prompt that does not fit, from its first word on.
    r"prompt is too long(: \d+ tokens > \d+ maximum|\.?$)",  # Anthropic; on Vertex AI without numbers
    r"input length and `?max_tokens`? exceed context limit: \d",
    r"Input is too long for requested model",  # Bedrock
    r"The input token count (\(\d+\) )?exceeds the maximum number of tokens allowed",  # Gemini
    r"Unable to submit request because the input token count is \d+ but model only supports up to \d",
    r"This (model|endpoint)'s maximum context length is \d",  # vLLM, DeepSeek, OpenRouter
    r"'max_tokens' or 'max_completion_tokens' is too large: \d+\. This model's maximum context length is \d",
    r"This model's maximum prompt length is \d",  # xAI
    r"The input \(\d+ tokens\) is longer than the model's context length",  # SGLang, Together
    r"Prompt contains \d+ tokens\b.{0,40}, too large for model with \d",  # Mistral
    r"(Invalid request: )?Your request exceeded model token limit: \d",  # Moonshot
    r"(prompt too long; exceeded max|the input length exceeds the) context length",  # Ollama
)
_TOO_LONG = re.compile(f"(The model returned the following errors: )?({'|'.join(_OVERFLOWS)})", re.IGNORECASE)
_MAX_MESSAGE = 2000


def error_class_of(status: int | None) -> type[GatewayError]:
    """The class of an HTTP status; None: the error came inside a 200."""
    if status is None:
        return UpstreamError
    found = _STATUSES.get(status)
    if found is not None:
        return found
    return InvalidRequest if 400 <= status < 500 else UpstreamError


def upstream_failure(
    error_class: type[GatewayError],
    message: object,
    *,
    status: int | None,
    param: str | None = None,
    code: str | None = None,
) -> GatewayError:
    """The error as the client is told of it: a bounded message, and nothing about the gateway's account. The status
    stands for a `message` that is no text, or empty."""
    if not isinstance(message, str) or not message:
        message = "the upstream answered with an error" if status is None else f"the upstream answered {status}"
    if error_class is InvalidRequest and _TOO_LONG.match(message):
        error_class, code = ContextOverflow, None
    if issubclass(error_class, (UpstreamAuth, UpstreamQuota)):
        return error_class(_PRIVATE[error_class], upstream_status=status)
    if issubclass(error_class, UpstreamError):
        return error_class(message[:_MAX_MESSAGE], param=param, code=code, upstream_status=status)
    return error_class(message[:_MAX_MESSAGE], param=param, code=code)


def given_up(word: str) -> UpstreamError:
    """The error for an answer whose upstream says, in this word, that it broke off: that is never a finish."""
    return UpstreamError(f"the upstream gave up the answer ({word})")


def no_finish() -> UpstreamError:
    """The error for an answer that ends without a word of why."""
    return UpstreamError("the upstream's answer has no finish")
