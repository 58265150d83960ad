"""A field that holds texts or token ids: `prompt` of completions, `input` of embeddings."""

from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Prompt
from adapters.json_fields import JsonObject
from adapters.openai.vocabulary import TokenId

__all__ = ["MAX_PROMPTS", "take_prompts"]

MAX_PROMPTS = 2048
_PROMPT = Decoder(str | list[str | TokenId | list[TokenId]])


def take_prompts(body: JsonObject, name: str) -> tuple[Prompt, ...]:
    """A string, token ids, a list of strings, or a list of lists of token ids; several are several prompts."""
    value = body.require(name, _PROMPT)
    if isinstance(value, str):
        return (value,)
    if not value:
        raise InvalidRequest.at(name, "the list must not be empty")
    ids = [item for item in value if isinstance(item, int)]
    if len(ids) == len(value):
        return (tuple(ids),)
    if len(value) > MAX_PROMPTS:
        raise InvalidRequest.at(name, f"at most {MAX_PROMPTS} in one request")
    prompts: list[Prompt] = []
    for i, item in enumerate(value):
        path = f"{name}[{i}]"
        if isinstance(item, int):
            raise InvalidRequest.at(path, "token ids and texts cannot be mixed in one list")
        if item == []:
            raise InvalidRequest.at(path, "the list must not be empty")
        prompts.append(item if isinstance(item, str) else tuple(item))
    return tuple(prompts)
