"""A legacy completions body as a Request."""

from adapters.canonical.request import Request
from adapters.field_types import COUNT, TOP_LOGPROBS
from adapters.json_fields import parse_object
from adapters.openai.prompts import take_prompts
from adapters.openai.request_fields import build_request, take_limit, take_model, take_shared
from adapters.openai.response_format import parse_output_format
from adapters.openai.vocabulary import COMPLETION_FIELDS, COMPLETIONS

__all__ = ["parse_completions"]


def parse_completions(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    model = take_model(body)
    prompts = take_prompts(body, "prompt")
    max_tokens, is_unlimited = take_limit(body, "max_tokens", COUNT)
    logprobs = body.take("logprobs", TOP_LOGPROBS)
    output_format = parse_output_format(body)
    groups = take_shared(body, COMPLETION_FIELDS)
    return build_request(
        body,
        COMPLETIONS,
        groups,
        model=model,
        prompts=prompts,
        max_tokens=max_tokens,
        open_ended=is_unlimited,
        logprobs=logprobs,
        output_format=output_format,
    )
