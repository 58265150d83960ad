"""A value for each field of a request, and a request that sets nothing else."""

import types
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import (
    LoraAdapter,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TemplateOptions,
    Tool,
    ToolChoice,
)

__all__ = ["plain_request", "request_with"]

_GROUPS: dict[str, tuple[str, type[Struct]]] = {
    "reasoning": ("reasoning", ReasoningOptions),
    "template": ("template", TemplateOptions),
}
_TOOLS = (Tool(kind="function", name="f", parameters=b'{"type":"object"}'),)
_SCHEMA = OutputFormat(kind="json_schema", name="n", schema=b'{"type":"object"}', strict=True)
_SPECIAL: dict[str, Any] = {
    # Where any value of the type would not do.
    "tools": _TOOLS,
    "tool_choice": ToolChoice(mode="required"),
    "output_format": _SCHEMA,
    "adapter": LoraAdapter(name="a"),
    "service_tier": "flex",
    "modalities": ("text", "image"),
    "truncation": "x",
    "metadata": b'{"a":"b"}',
    "reasoning.effort": "high",
    "reasoning.mode": "disabled",
    "reasoning.include": False,
    "reasoning.separate": False,
    "reasoning.summary": "x",
    "reasoning.budget_tokens": 2048,
    "store": True,
    "n": 2,
    "best_of": 2,
    "parallel_tool_calls": False,
    "detokenize": False,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "verbosity": "low",
    "max_tokens": 5000,
}
_SWITCHES: dict[str, str] = {
    # Fields of a sampler say nothing while it is off.
    **dict.fromkeys(
        ("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"), "dry_multiplier"
    ),
    "dynatemp_exponent": "dynatemp_range",
    "repeat_last_n": "repetition_penalty",
    "xtc_threshold": "xtc_probability",
}
_NEEDS_TOOLS = ("tool_choice", "parallel_tool_calls", "max_tool_calls")


def plain_request(name: str) -> Request:
    """A request that leaves the field unset, with what the field needs beside it."""
    message = Message(role=USER, parts=(Text(text="hi"),))
    needed: dict[str, Any] = {"tools": _TOOLS} if name in _NEEDS_TOOLS else {}
    if name in _SWITCHES:
        needed["sampling"] = replace(Sampling(), **{_SWITCHES[name]: 0.5})
    return Request(model="m", dialect="elsewhere", stream=True, messages=(message,), **needed)


def request_with(name: str) -> Request:
    """The same with the field set."""
    plain = plain_request(name)
    prefix, _, member = name.rpartition(".")
    if prefix:
        group, kind = _GROUPS[prefix]
        return replace(plain, **{group: kind(**{member: _value(name, get_type_hints(kind)[member])})})
    if name in Sampling.__struct_fields__:
        hints = get_type_hints(Sampling)
        return replace(plain, sampling=replace(plain.sampling, **{name: _value(name, hints[name])}))
    return replace(plain, **{name: _value(name, get_type_hints(Request)[name])})


def _value(name: str, hint: Any) -> Any:
    return _SPECIAL[name] if name in _SPECIAL else _of_type(hint)


def _of_type(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return _of_type(next(one for one in get_args(hint) if one is not types.NoneType))
    origin = get_origin(hint)
    if origin is tuple:
        return (_of_type(get_args(hint)[0]),)
    if origin is Mapping:
        return {7: 1.0}
    samples: dict[Any, Any] = {bool: True, int: 7, float: 0.25, str: "x", bytes: b'{"a":1}'}
    return samples[hint]
