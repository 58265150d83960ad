"""A legacy completions body as a Request."""

from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Prompt, Request
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.request_fields import build_request, take_model, take_shared
from adapters.openai.vocabulary import COMPLETION_FIELDS, COMPLETIONS, COUNT

__all__ = ["parse_completions"]

_TOKEN = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_PROMPT = Decoder(str | list[str | _TOKEN | list[_TOKEN]])
_LOGPROBS = Decoder(Annotated[int, Meta(ge=0, le=20)])
_MAX_PROMPTS = 2048


def parse_completions(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    model = take_model(body)
    prompts = _take_prompts(body)
    max_tokens = body.take("max_tokens", COUNT)
    logprobs = body.take("logprobs", _LOGPROBS)
    groups = take_shared(body, COMPLETION_FIELDS)
    return build_request(
        body, COMPLETIONS, groups, model=model, prompts=prompts, max_tokens=max_tokens, logprobs=logprobs
    )


def _take_prompts(body: JsonObject) -> tuple[Prompt, ...]:
    """A string, token ids, a list of strings, or a list of lists of token ids; several are several prompts."""
    value = body.require("prompt", _PROMPT)
    if isinstance(value, str):
        return (value,)
    if not value:
        raise InvalidRequest("prompt: the list must not be empty", param="prompt")
    ids = [item for item in value if isinstance(item, int)]
    if len(ids) == len(value):
        return (tuple(ids),)
    if len(value) > _MAX_PROMPTS:
        raise InvalidRequest(f"prompt: at most {_MAX_PROMPTS} prompts in one request", param="prompt")
    prompts: list[Prompt] = []
    for i, item in enumerate(value):
        if isinstance(item, int):
            path = f"prompt[{i}]"
            raise InvalidRequest(f"{path}: token ids and texts cannot be mixed in one list", param=path)
        if item == []:
            raise InvalidRequest(f"prompt[{i}]: the list must not be empty", param=f"prompt[{i}]")
        prompts.append(item if isinstance(item, str) else tuple(item))
    return tuple(prompts)
