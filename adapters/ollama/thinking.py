"""How much the model thinks, both ways: `think`, a switch or a level."""

from typing import Literal

from msgspec.json import Decoder

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import ReasoningOptions, Request
from adapters.json_fields import JsonObject
from adapters.ollama.vocabulary import CHAT, GENERATE

__all__ = ["take_thinking", "think_value"]

_THINK = Decoder(bool | Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"])
_NO_EFFORT = "none"
_ADAPTIVE = "adaptive"
_LEVELS: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""Efforts to levels, as Ollama's own OpenAI surface has them."""


def take_thinking(body: JsonObject) -> ReasoningOptions | None:
    """Switched on leaves it to the model how much; switched off is what other dialects call no effort."""
    think = body.take("think", _THINK)
    if think is None:
        return None
    if think is True:
        return ReasoningOptions(mode=_ADAPTIVE)
    return ReasoningOptions(effort=_NO_EFFORT if think is False else think)


def think_value(request: Request) -> bool | str | None:
    """None where nothing is said: a model that does not think refuses to be told to."""
    options = request.reasoning
    if options is None:
        return None
    if options.effort is not None:
        return _LEVELS.get(options.effort, options.effort)
    if options.mode is None:
        return None
    if options.mode != _ADAPTIVE:
        raise UnsupportedParameter.at("reasoning", f"Ollama can't think in the mode {options.mode}")
    return True if request.dialect in (CHAT, GENERATE) else None
