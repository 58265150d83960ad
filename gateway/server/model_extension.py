"""What the gateway knows of a model, as it stands under `gateway` in lists of models."""

from collections.abc import Mapping, Sequence

from msgspec import to_builtins

from gateway.routing.route import Target
from providers.base import ModelEntry
from providers.models.facts import facts_of

__all__ = ["extension_of"]


def extension_of(targets: Sequence[Target], context: int | None, entry: ModelEntry) -> Mapping[str, object]:
    """Of a name that stands for these targets; the facts are those of the first one's model, with this window, and
    with what its provider tells of it."""
    if not targets:
        return {}
    found: dict[str, object] = {"targets": [target.label for target in targets]}
    if context is not None:
        found["context_window"] = context
    if entry.inputs is not None:
        found["input"] = ["text", *entry.inputs]
    if entry.defaults is not None:
        found["defaults"] = entry.defaults
    facts = facts_of(targets[0].model)
    if facts is None:
        return found
    known = {
        "family": facts.family,
        "max_output_tokens": facts.max_output,
        "input": None if entry.inputs is not None or facts.inputs is None else ["text", *facts.inputs],
        "tools": facts.tools,
        "reasoning": facts.reasoning,
        "sampling": None if facts.sampling is None else list(facts.sampling),
        "structured_output": facts.structured_output,
    }
    found.update({name: value for name, value in known.items() if value is not None})
    if facts.prices is not None:
        found["prices"] = {"currency": "USD", "per_tokens": 1_000_000, **to_builtins(facts.prices)}
    return found
