"""The finish_reason that a client reads, and what else OpenAI-shaped choices say about their end."""

from typing import Any

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.openai.vocabulary import FINISH_WORDS, STOP_REASONS
from adapters.upstream_errors import given_up

__all__ = ["finish_fields", "finish_word"]


def finish_word(request: Request, finish: ChoiceFinished) -> str:
    """A call that the client itself named ends in `stop`, as OpenAI's does; a failed choice has no word."""
    reason = finish.reason
    if request.tool_choice is not None and request.tool_choice.name is not None and reason is StopReason.TOOL_CALLS:
        return FINISH_WORDS[StopReason.STOP]
    word = FINISH_WORDS.get(reason)
    if word is None:
        raise given_up(finish.word)
    return word


def finish_fields(finish: ChoiceFinished) -> dict[str, Any]:
    """Extensions: `stop_reason`, which stop string or token id hit (vLLM), and a raw word not of OpenAI."""
    found: dict[str, Any] = {}
    if finish.stop is not None:
        found["stop_reason"] = finish.stop
    if finish.raw is not None and finish.raw not in STOP_REASONS:
        found["native_finish_reason"] = finish.raw
    return found
