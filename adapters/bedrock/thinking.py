"""How much a model on Bedrock thinks: Converse's own effort, and fields that its makers' models take beside it."""

from typing import Any

from msgspec import Struct

from adapters.canonical.request import Request
from adapters.claude_models import is_known, traits_of
from adapters.thinking_budget import thinking_budget

__all__ = ["Thinking", "thinking_of"]


class Thinking(Struct, frozen=True):
    """`fields` go to the model past Converse; `effort` is Converse's own."""

    fields: dict[str, Any] = {}
    effort: str | None = None

    @property
    def is_due(self) -> bool:
        """A turn has to begin with a thought: those of a model that decides itself whether to think need not."""
        config: dict[str, Any] = self.fields.get("thinking", {})
        return config.get("type") == "enabled"


def _off(model: str) -> Thinking:
    return Thinking({"thinking": {"type": traits_of(model).least_thinking}})


def thinking_of(request: Request, *, lost_its_thoughts: bool) -> Thinking:
    """Off where calls go on that began with a thought which did not come back."""
    found = _asked(request)
    return _off(request.model) if found.is_due and lost_its_thoughts else found


def _asked(request: Request) -> Thinking:
    options = request.reasoning
    if options is None or (options.effort is None and options.budget_tokens is None):
        return Thinking()
    is_claude = is_known(request.model)
    if options.effort == "none" or options.budget_tokens == 0:
        return _off(request.model) if is_claude else Thinking()
    if "gpt-oss" in request.model and options.effort is not None:
        return Thinking({"reasoning_effort": options.effort})
    if not is_claude:
        return Thinking(effort=options.effort)
    if options.budget_tokens is None and traits_of(request.model).adaptive:
        effort = "low" if options.effort == "minimal" else options.effort
        # Newer models tell no thought that is not asked for.
        return Thinking({"thinking": {"type": "adaptive", "display": "summarized"}}, effort)
    budget = options.budget_tokens or thinking_budget(options.effort or "medium", request.max_tokens)
    return Thinking({"thinking": {"type": "enabled", "budget_tokens": budget}})
