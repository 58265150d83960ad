"""`defaults:` of an alias: fields of a request, and a system prompt, that apply where the client left them out; and the
bound of its answers, whatever the client says.
"""

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import replace

from adapters.canonical.messages import DEVELOPER, SYSTEM, Message, Text
from adapters.canonical.request import ReasoningOptions, Request, Sampling
from adapters.field_types import POSITIVE, TOP_LOGPROBS
from adapters.json_fields import Decodes, told
from adapters.nearest_name import did_you_mean
from adapters.openai.request_fields import LOGIT_BIAS
from adapters.openai.vocabulary import CHAT_FIELDS
from adapters.sampler_fields import SAMPLERS

__all__ = ["Defaults", "DefaultsError", "bounded"]

_TOP = (
    "best_of", "logprobs", "max_tokens", "max_tool_calls", "modalities", "n", "parallel_tool_calls", "priority",
    "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
    "truncate_prompt_tokens", "user", "verbosity",
)  # fmt: skip
_SYSTEM_PROMPT = "system"
_TYPES = {name: get_type_hints(Request)[name] for name in _TOP}
_SAMPLING_TYPES = get_type_hints(Sampling)
_REASONING_TYPES = {f"reasoning.{name}": hint for name, hint in get_type_hints(ReasoningOptions).items()}

_RANGES: Mapping[str, Decodes[Any]] = {
    **{name: field.decoder for name, field in CHAT_FIELDS.by_name.items()},
    **SAMPLERS,
    "max_tokens": POSITIVE,
    "max_tool_calls": POSITIVE,
    "logprobs": TOP_LOGPROBS,
    "logit_bias": LOGIT_BIAS,
}
"""What a client of OpenAI's chat may say in these fields: a default that it may not say would fail every request."""


class DefaultsError(ValueError):
    """A default that names no field, or has the wrong type or is out of range."""


class Defaults:
    """Checked when built; raises DefaultsError. Names are those of `adapters.canonical.request.set_fields`."""

    __slots__ = ("_reasoning", "_sampling", "_system", "_top")

    def __init__(self, values: Mapping[str, object]) -> None:
        self._system: Message | None = None
        self._top: dict[str, object] = {}
        self._sampling: dict[str, object] = {}
        self._reasoning: dict[str, object] = {}
        for name, value in values.items():
            if name == _SYSTEM_PROMPT:
                self._system = Message(role=SYSTEM, parts=(Text(text=_prompt(value)),))
            elif name in _TYPES:
                self._top[name] = _typed(name, value, _TYPES[name])
            elif name in _SAMPLING_TYPES:
                self._sampling[name] = _typed(name, value, _SAMPLING_TYPES[name])
            elif name in _REASONING_TYPES:
                self._reasoning[name.removeprefix("reasoning.")] = _typed(name, value, _REASONING_TYPES[name])
            else:
                known = (_SYSTEM_PROMPT, *_TYPES, *_SAMPLING_TYPES, *_REASONING_TYPES)
                raise DefaultsError(f"defaults.{name}: no such field of a request{did_you_mean(name, known)}")

    def apply(self, request: Request) -> Request:
        """The request with the fields set that it lacks."""
        changed = _missing(request, self._top)
        if sampling := _missing(request.sampling, self._sampling):
            changed["sampling"] = replace(request.sampling, **sampling)
        reasoning = request.reasoning or ReasoningOptions()
        if missing := _missing(reasoning, self._reasoning):
            changed["reasoning"] = replace(reasoning, **missing)
        request = replace(request, **changed) if changed else request
        return request if self._system is None else _begun(request, self._system)


def bounded(request: Request, max_tokens: int) -> Request:
    """The request for an answer of at most so many tokens. A prompt without a limit has the small one of its API."""
    asked = request.max_tokens
    if asked is None and request.prompts is not None and not request.open_ended:
        return request
    return request if asked is not None and asked <= max_tokens else replace(request, max_tokens=max_tokens)


def _prompt(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DefaultsError(f"defaults.{_SYSTEM_PROMPT}: expected text that is not empty")
    return value


def _begun(request: Request, system: Message) -> Request:
    """The request with this before its messages, where they begin with none of the kind."""
    messages = request.messages
    if not messages or messages[0].role in (SYSTEM, DEVELOPER) or request.prompt_token_ids is not None:
        return request
    paths = map(request.message_path, range(len(messages)))
    return replace(request, messages=(system, *messages), message_paths=("model", *paths))


def _typed(name: str, value: object, hint: object) -> object:
    try:
        converted: object = msgspec.convert(value, hint, str_keys=True)
        if converted is not None and name in _RANGES:
            _RANGES[name].decode(msgspec.Raw(msgspec.json.encode(converted)))
    except msgspec.ValidationError as error:
        raise DefaultsError(f"defaults.{name}: {told(error)}") from error
    return converted


def _missing(struct: msgspec.Struct, values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if getattr(struct, name) is None}
