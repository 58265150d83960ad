"""Other servers' spellings of fields that the canonical request has: one table.

A server of the client's own dialect gets them as they came, among the request's extras. For any other target they are
read here: `resolved` turns the extras that it knows into fields.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import ASSISTANT, ProviderData
from adapters.canonical.request import LoraAdapter, ReasoningOptions, Request, TemplateOptions
from adapters.field_types import BOOL, NAME, OPEN_COUNT, POSITIVE
from adapters.json_fields import Decodes, told
from adapters.openai.vocabulary import CHAT, CHAT_FIELDS, COMPLETION_FIELDS, COMPLETIONS, RESPONSES, RESPONSES_FIELDS
from adapters.sampler_fields import SAMPLER_ORDER, SAMPLERS, has_temperature_last

__all__ = ["ALIASES", "resolved"]

_Values = Mapping[str, Any]
"""Values by canonical name, as `set_fields` names fields; None leaves a field as it is."""


class _Alias(NamedTuple):
    """`values`: what a decoded value asks for; None: what no field stands for. Raises ValueError, saying what was
    expected."""

    decoder: Decodes[Any]
    values: Callable[[Any], _Values | None]


def _field(name: str, decoder: Decodes[Any]) -> _Alias:
    """Another name of one field."""
    return _Alias(decoder, lambda value: {name: tuple(value) if isinstance(value, list) else value})


def _same(wire: str) -> _Alias:
    """Another name of a field of the dialect's own table."""
    field = CHAT_FIELDS.by_wire[wire]
    name = field.name if field.group in ("", "sampling") else f"{field.group}.{field.name}"
    return _field(name, field.decoder)


def _only(value: Any) -> _Alias:
    """A field of which one value alone asks for what is done anyway."""

    def values(found: Any) -> _Values:
        if found != value:
            raise ValueError(f"only {str(value).lower()} is possible here")
        return {}

    return _Alias(Decoder(type(value)), values)


def _neutral(*values: float) -> _Alias:
    """A sampler that nobody here has, at the values at which it does nothing."""
    return _Alias(Decoder(Any), lambda found: {} if found in values else None)


_SAYS_NOTHING: Final = _Alias(Decoder(Any), lambda _: {})
"""A field that only speaks of a sampler which another one switches on."""


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    budget_tokens: int | None = None


class _Reasoning(msgspec.Struct, forbid_unknown_fields=True):
    effort: str | None = None
    max_tokens: int | None = None
    exclude: bool | None = None
    enabled: bool | None = None


class _Lora(msgspec.Struct):
    """vLLM and TensorRT-LLM: a name, and where the adapter lies, which the gateway's own configuration says."""

    name: str | None = None
    lora_name: str | None = None


def _switched(is_on: bool) -> _Values:
    return {"reasoning.mode": "adaptive"} if is_on else {"reasoning.effort": "none"}


def _thinking(found: bool | _Thinking) -> _Values:
    if isinstance(found, bool):
        return _switched(found)
    if found.type not in ("enabled", "disabled", "adaptive", "auto"):
        raise ValueError("expected type enabled, disabled or adaptive")
    if found.budget_tokens is not None and found.type != "disabled":
        return {"reasoning.budget_tokens": found.budget_tokens}
    return _switched(found.type != "disabled")


def _reasoning(found: _Reasoning) -> _Values:
    is_said = found.enabled is None or found.effort is not None or (found.enabled and found.max_tokens is not None)
    switch = {} if is_said else _switched(bool(found.enabled))
    include = None if found.exclude is None else not found.exclude
    effort = {} if found.effort is None else {"reasoning.effort": found.effort}
    return {**switch, **effort, "reasoning.budget_tokens": found.max_tokens, "reasoning.include": include}


def _reasoning_format(found: str) -> _Values:
    if found not in ("none", "auto", "deepseek"):
        raise ValueError("expected none, auto or deepseek")
    return {"reasoning.separate": False} if found == "none" else {}


def _limit(found: int) -> _Values:
    """-1: there is to be none."""
    return {"open_ended": True} if found < 0 else {"max_tokens": found}


def _adapter(found: _Lora) -> _Values:
    name = found.lora_name or found.name
    if not name:
        raise ValueError("expected the name of an adapter of run.yaml; none is loaded from a path")
    return {"adapter": LoraAdapter(name=name)}


ALIASES: Final[Mapping[str, _Alias]] = {
    # llama.cpp
    "repeat_penalty": _same("repetition_penalty"),
    "n_predict": _Alias(OPEN_COUNT, _limit),
    "return_tokens": _same("return_token_ids"),
    "reasoning_format": _Alias(NAME, _reasoning_format),
    "reasoning_budget_tokens": _same("thinking_token_budget"),
    "cache_prompt": _only(True),
    "timings_per_token": _only(False),
    "return_progress": _only(False),
    "id_slot": _neutral(-1),
    "n_probs": _neutral(0),
    "post_sampling_probs": _only(False),
    # Samplers of llama.cpp and of text-generation-webui, whose clients send all of them with every request
    **{name: _field(name, decoder) for name, decoder in SAMPLERS.items()},
    "samplers": _Alias(SAMPLER_ORDER, lambda order: {"temperature_last": has_temperature_last(order) or None}),
    "temperature_last": _field("temperature_last", BOOL),
    **{name: _neutral(0) for name in ("mirostat", "top_a", "smoothing_factor")},
    "tfs_z": _neutral(1),
    **dict.fromkeys(("mirostat_tau", "mirostat_eta", "smoothing_curve"), _SAYS_NOTHING),
    "ban_eos_token": _same("ignore_eos"),
    # SGLang
    "no_stop_trim": _same("include_stop_str_in_output"),
    "min_new_tokens": _same("min_tokens"),
    "max_new_tokens": _field("max_tokens", POSITIVE),
    "input_ids": _same("prompt_token_ids"),
    "rid": _field("request_id", NAME),
    "lora_path": _Alias(NAME, lambda name: {"adapter": LoraAdapter(name=name)}),
    "stream_reasoning": _only(True),
    # TensorRT-LLM
    "lora_request": _Alias(Decoder(_Lora), _adapter),
    "typical": _same("typical_p"),
    # Mistral
    "random_seed": _same("seed"),
    "safe_prompt": _neutral(False),
    # How much to think: SGLang and TensorRT-LLM, DeepSeek, Qwen, Seed, OpenRouter
    "thinking": _Alias(Decoder(bool | _Thinking), _thinking),
    "enable_thinking": _Alias(BOOL, _switched),
    "thinking_budget": _same("thinking_token_budget"),
    "reasoning": _Alias(Decoder(_Reasoning), _reasoning),
}
"""By wire name. (The Responses API reads its `reasoning` itself.)"""
_CONTINUES: Final = ("prefix", "partial")
"""Fields of a message: of Mistral and DeepSeek, of Moonshot and Qwen."""

_APART: Final = frozenset(("max_tokens", "open_ended", "adapter", "request_id", "temperature_last", *SAMPLERS))
"""Fields that every surface has, some without a row in its table."""
_FIELDS: Final[Mapping[str, Container[str]]] = {
    CHAT: CHAT_FIELDS.by_name.keys() | _APART | {"reasoning.mode"},
    COMPLETIONS: COMPLETION_FIELDS.by_name.keys() | _APART,
    RESPONSES: RESPONSES_FIELDS.by_name.keys() | _APART | {"reasoning.mode", "reasoning.effort"},
}
"""What a surface can ask for: an alias of anything else is no field of it."""


def resolved(request: Request) -> Request:
    """The request with the extras that are other spellings as the fields that they stand for, and without those that
    are null.

    Raises InvalidRequest for a value that cannot be, and for a field that is given twice.
    """
    fields = _FIELDS.get(request.dialect)
    if fields is None:
        return request
    request = _continued(request)
    left: dict[str, bytes] = {}
    values: dict[str, Any] = {}
    for name, raw in request.extras.items():
        if raw == b"null":
            continue
        alias = ALIASES.get(name)
        asked = {} if alias is None else _read(alias, name, raw)
        if alias is None or asked is None or any(field not in fields for field in asked):
            left[name] = raw
            continue
        for field, value in asked.items():
            if field in values or _is_set(request, field):
                raise InvalidRequest.at(name, "given twice, under two names")
            values[field] = value
    return request if len(left) == len(request.extras) else _with_values(replace(request, extras=left), values)


def _continued(request: Request) -> Request:
    """A last message that says itself that the answer is to go on from it."""
    messages = request.messages or ()
    extras = messages[-1].extras if messages and messages[-1].role == ASSISTANT else None
    if extras is None or all(extras.fields.get(name) != b"true" for name in _CONTINUES):
        return request
    left = {name: raw for name, raw in extras.fields.items() if name not in _CONTINUES}
    last = replace(messages[-1], extras=ProviderData(CHAT, left) if left else None)
    template = replace(request.template or TemplateOptions(), continue_final_message=True, add_generation_prompt=False)
    return replace(request, messages=(*messages[:-1], last), template=template)


def _read(alias: _Alias, name: str, raw: bytes) -> _Values | None:
    try:
        asked = alias.values(alias.decoder.decode(msgspec.Raw(raw)))
    except ValueError as error:  # msgspec's own are such
        raise InvalidRequest.at(name, told(error)) from error
    return None if asked is None else {field: value for field, value in asked.items() if value is not None}


def _is_set(request: Request, field: str) -> bool:
    if field in ("request_id", "open_ended"):  # of which every request has one
        return False
    group, _, member = field.rpartition(".")
    if group:
        holder = getattr(request, group)
        return holder is not None and getattr(holder, member) is not None
    holder = request.sampling if field in request.sampling.__struct_fields__ else request
    return getattr(holder, field) is not None


def _with_values(request: Request, values: Mapping[str, Any]) -> Request:
    sampling = {name: value for name, value in values.items() if name in request.sampling.__struct_fields__}
    reasoning = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("reasoning.")}
    top = {name: value for name, value in values.items() if name not in sampling and "." not in name}
    if sampling:
        top["sampling"] = replace(request.sampling, **sampling)
    if reasoning:
        top["reasoning"] = replace(request.reasoning or ReasoningOptions(), **reasoning)
    return replace(request, **top) if top else request
