"""How much the model thinks, both ways: `thinking` and `output_config.effort`.

A client of this dialect gets exactly what it asked for. For others an effort becomes adaptive thinking, or a budget on
models that do not decide themselves.
"""

from typing import Any, Literal

from msgspec.json import Decoder

from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import REQUIRED, ReasoningOptions, Request
from adapters.claude_models import ModelTraits
from adapters.field_types import COUNT
from adapters.json_fields import JsonObject
from adapters.thinking_budget import MIN_THINKING, thinking_budget

__all__ = ["DEFAULT_MAX_TOKENS", "Thinking", "take_thinking", "thinking_of"]

DEFAULT_MAX_TOKENS = 4096
"""The API demands a limit; this one is sent where neither the client nor run.yaml gives one."""

_TYPE = Decoder(Literal["enabled", "disabled", "adaptive", "between_tools"])
_DISPLAY = Decoder(Literal["summarized", "omitted"])
_EFFORT = Decoder(Literal["low", "medium", "high", "xhigh", "max"])
_NO_EFFORT = "none"
_SELF = "adaptive"
_MODES = ("disabled", "between_tools", _SELF)
_USUAL = "standard"
"""The Responses API's word for what every model does without being told."""


def take_thinking(found: JsonObject | None, output_config: JsonObject | None) -> ReasoningOptions | None:
    """`thinking: disabled` alone is what other dialects call no effort; `enabled` is said by its budget."""
    effort: str | None = None if output_config is None else output_config.take("effort", _EFFORT)
    if found is None:
        return None if effort is None else ReasoningOptions(effort=effort)
    kind = found.require("type", _TYPE)
    display = found.take_if("display", _DISPLAY)
    budget = found.require("budget_tokens", COUNT) if kind == "enabled" else None
    if budget is not None and budget < MIN_THINKING:
        raise InvalidRequest.at("thinking.budget_tokens", f"expected at least {MIN_THINKING}")
    mode: str | None = kind
    if kind == "enabled":
        mode = None
    elif kind == "disabled" and effort is None:
        effort, mode = _NO_EFFORT, None
    return ReasoningOptions(
        effort=effort,
        mode=mode,
        budget_tokens=budget,
        include=None if display is None else display == "summarized",
    )


class Thinking:
    """What an upstream is told: the `thinking` object and the effort, None where nothing is said."""

    __slots__ = ("config", "effort")

    def __init__(self, config: dict[str, Any] | None = None, effort: str | None = None) -> None:
        self.config = config
        self.effort = effort

    @property
    def is_on(self) -> bool:
        return self.config is not None and self.config["type"] in (_SELF, "enabled")

    @property
    def is_due(self) -> bool:
        """A turn has to begin with a thought: those of a model that decides itself whether to think need not."""
        return self.config is not None and self.config["type"] == "enabled"

    @property
    def least_tokens(self) -> int:
        """A limit below or at this leaves no room for an answer."""
        budget: int = 0 if self.config is None else self.config.get("budget_tokens", 0)
        return budget


def thinking_of(request: Request, traits: ModelTraits) -> Thinking:
    """Raises InvalidRequest where thinking and another field of the client exclude each other."""
    options = request.reasoning
    if options is None:
        return Thinking()
    effort = None if options.effort == _NO_EFFORT else options.effort
    mode = None if options.mode == _USUAL else options.mode
    if mode is not None and mode not in _MODES:
        raise UnsupportedParameter.at("reasoning.mode", f"Anthropic has no mode {mode}")
    native = request.dialect == MESSAGES
    found = Thinking(effort=("low" if effort == "minimal" else effort))
    if mode is not None and mode != _SELF:
        found.config = {"type": mode}
    elif options.effort == _NO_EFFORT or options.budget_tokens == 0:
        found.config = {"type": traits.least_thinking}
    elif options.budget_tokens is not None:
        found.config = {"type": "enabled", "budget_tokens": options.budget_tokens}
    elif mode is not None:
        found.config = {"type": mode}
    elif effort is not None and not native:
        if traits.adaptive:
            found.config = {"type": _SELF}
        else:
            found = Thinking({"type": "enabled", "budget_tokens": thinking_budget(effort, request.max_tokens)})
    if found.config is not None and found.is_on:
        include = options.include
        if include is None and not native and not found.is_due:
            include = True  # newer models tell no thought that is not asked for
        if include is not None:
            found.config["display"] = "summarized" if include else "omitted"
        if found.is_due and not native and request.tool_choice is not None and request.tool_choice.mode == REQUIRED:
            raise InvalidRequest.at(
                "tool_choice", "this model can't be made to call a tool while it thinks; leave reasoning_effort out"
            )
    return found
