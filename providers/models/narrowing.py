"""What a provider can express for one model: what the provider takes, less what the model is known not to."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from msgspec.structs import fields as struct_fields

from adapters.canonical.messages import Audio, Image, Part, Video
from adapters.canonical.request import Sampling
from providers.base import Capabilities
from providers.models.facts import JSON_OBJECT, JSON_SCHEMA, ModelFacts, facts_of

__all__ = ["per_model"]

_DRAWING = frozenset(field.name for field in struct_fields(Sampling)) - {"stop", "seed"} | {"logprobs"}
"""The parameters that a list of sampling parameters speaks of; seeds and stop strings stand apart from it."""
_TOOLS = frozenset(("tools", "tool_choice", "parallel_tool_calls"))
_MEDIA: tuple[tuple[str, type[Part]], ...] = (("image", Image), ("audio", Audio), ("video", Video))
_ANY_FORMAT = frozenset(("text", JSON_OBJECT, JSON_SCHEMA, "regex", "choice", "grammar", "structural_tag"))
_MAX_KEPT = 1024


def per_model(base: Capabilities) -> Callable[[str], Capabilities]:
    """From a model's name to what can be expressed for it. A model that is not known gets `base`."""

    @lru_cache(maxsize=_MAX_KEPT)
    def of(model: str) -> Capabilities:
        facts = facts_of(model)
        return base if facts is None else _narrowed(base, facts)

    return of


def _narrowed(base: Capabilities, facts: ModelFacts) -> Capabilities:
    fields, parts, formats = base.fields, base.parts, base.output_formats
    if facts.sampling is not None:
        fields -= _DRAWING - frozenset(facts.sampling)
    if facts.tools is False:
        fields -= _TOOLS
    if facts.inputs is not None:
        parts -= {part for kind, part in _MEDIA if kind not in facts.inputs}
    if facts.structured_output == JSON_OBJECT:
        formats = (formats or _ANY_FORMAT) - {JSON_SCHEMA}
    return replace(
        base,
        fields=fields,
        parts=parts,
        output_formats=formats,
        thinks=base.thinks and facts.reasoning is not False,
        always_thinks=facts.always_reasons,
        max_output=facts.max_output,
    )
