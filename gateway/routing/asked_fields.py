"""Fields of a request that a target lacks: which ones the client set, and whether they ask for anything.

Knows no names of a client, and refuses nothing.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter

from msgspec.structs import fields as struct_fields

from adapters.canonical.request import (
    AUTO,
    EXPRESSIBLE_FIELDS,
    NONE,
    OutputFormat,
    Request,
    Sampling,
    ToolChoice,
    set_fields,
)

__all__ = ["THINKING", "asks_nothing", "unsupported_fields", "wants_no_thoughts", "wants_thoughts"]

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    # Values that ask for nothing: a target that lacks the field does it anyway. They are unset without a word.
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "store": (False,),
    "parallel_tool_calls": (True,),
    "tool_choice": (ToolChoice(mode=AUTO),),
    "output_format": (OutputFormat(kind="text"),),
    "modalities": (("text",),),
    "service_tier": ("auto", "default", "standard", "standard_only"),
    "verbosity": ("medium",),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "return_context_logits": (False,),
    "detokenize": (True,),
    "include_obfuscation": (False,),
    "truncation": ("auto", "disabled"),  # the router itself shortens what does not fit
    "reasoning.mode": ("adaptive",),
    "reasoning.separate": (True,),
    "reasoning.include": (True,),  # what a target thinks aloud is shown
    "reasoning.summary": ("auto", "concise", "detailed"),  # the front shows the thoughts themselves
    "sampling.temperature": (1.0,),
    "sampling.top_p": (1.0,),
    "sampling.top_k": (0, -1),
    "sampling.min_p": (0.0,),
    "sampling.typical_p": (1.0,),
    "sampling.top_n_sigma": (0.0, -1.0),
    "sampling.xtc_probability": (0.0,),
    "sampling.dynatemp_range": (0.0,),
    "sampling.temperature_last": (False,),
    "sampling.dry_multiplier": (0.0,),
    "sampling.repeat_last_n": (-1,),
    "sampling.repetition_penalty": (1.0,),
    "sampling.presence_penalty": (0.0,),
    "sampling.frequency_penalty": (0.0,),
    "sampling.logit_bias": ({},),
    "sampling.stop": ((),),
    "sampling.stop_token_ids": ((),),
    "sampling.bad_words": ((),),
    "sampling.include_stop": (False,),
    "sampling.ignore_eos": (False,),
    "sampling.min_tokens": (0,),
    "sampling.use_beam_search": (False,),
    "sampling.skip_special_tokens": (True,),
    "sampling.spaces_between_special_tokens": (True,),
}
_SWITCHES: Mapping[str, tuple[str, ...]] = {
    # Fields of samplers that others switch on: they ask for nothing while those do.
    **dict.fromkeys(
        ("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"), ("dry_multiplier",)
    ),
    "xtc_threshold": ("xtc_probability",),
    "dynatemp_exponent": ("dynatemp_range",),
    "repeat_last_n": ("repetition_penalty", "presence_penalty", "frequency_penalty"),
}
THINKING: Mapping[str, object] = {
    "reasoning.effort": "none",
    "reasoning.budget_tokens": 0,
    "reasoning.mode": "disabled",
}
"""The fields that may ask a model not to think, and the value that does."""
_VALUES = {path.removeprefix("sampling."): (attrgetter(path), neutral) for path, neutral in _NEUTRAL.items()}
_SAMPLING = frozenset(field.name for field in struct_fields(Sampling))
_FORMS = ("messages", "prompts")  # compared by Capabilities.messages and .prompts


def unsupported_fields(request: Request, supported: frozenset[str]) -> list[str]:
    """The fields that the client set and the target lacks. Looks at those alone that the target lacks."""
    for group, values_of in _lacked(supported):
        holder = getattr(request, group) if group else request
        values = () if holder is None else values_of(holder)
        if values.count(None) < len(values):  # a generator over them would cost ten times as much
            return [name for name in set_fields(request) if name not in supported and name not in _FORMS]
    return []


@lru_cache(maxsize=256)
def _lacked(supported: frozenset[str]) -> tuple[tuple[str, Callable[[object], tuple[object, ...]]], ...]:
    """For the request itself (\"\") and each group of fields in it: what reads the values that a target lacks."""
    names: dict[str, list[str]] = {}
    for name in EXPRESSIBLE_FIELDS - supported - frozenset(_FORMS):
        group, _, member = name.rpartition(".")
        names.setdefault(group or ("sampling" if member in _SAMPLING else ""), []).append(member)
    # A getter of one name would give a bare value, so the first name stands twice.
    return tuple((group, attrgetter(*members, members[0])) for group, members in names.items())


def asks_nothing(request: Request, name: str) -> bool:
    """Whether the field has a value that a target without it does anyway."""
    known = _VALUES.get(name)
    if known is not None and known[0](request) in known[1]:
        return True
    if name in _SWITCHES:
        switches = _SWITCHES[name]
        return all(getattr(request.sampling, each) is None or asks_nothing(request, each) for each in switches)
    return name == "parallel_tool_calls" and not _may_call_twice(request)


def _may_call_twice(request: Request) -> bool:
    """A choice that names a tool, or requires the only one, asks for one call of it."""
    choice, tools = request.tool_choice, request.tools or ()
    if choice is None or choice.mode == AUTO:
        return bool(tools)
    return choice.mode != NONE and choice.name is None and len(tools) > 1


def wants_no_thoughts(request: Request, name: str) -> bool:
    """Whether the field says that the model should not think, which one that never thinks does anyway."""
    return request.reasoning is not None and name in THINKING and attrgetter(name)(request) == THINKING[name]


def wants_thoughts(request: Request) -> bool:
    """Whether the model is asked to think."""
    asked = request.reasoning
    return asked is not None and (asked.effort not in (None, "none") or bool(asked.budget_tokens))
