"""A structured answer from models that only hold the parameters of a tool to a schema: they must call one.

The tool's arguments are the answer's text, and its call is the answer's end. Knows no wire words.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.request import REQUIRED, Request, Tool, ToolChoice
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.tool_kinds import FUNCTION
from providers.base import Batch
from providers.choices import StreamCall
from providers.models.facts import FORCED_TOOL, facts_of

__all__ = ["forced_output", "needs_tool"]

_TOOL = "structured_answer"
_DESCRIPTION = "Gives the answer in the form that was asked for. Call it once, with the whole answer."


def needs_tool(request: Request) -> bool:
    """Whether this request asks for a form that its model only gives as a tool's parameters."""
    wanted = request.output_format
    if wanted is None or wanted.schema is None:
        return False
    facts = facts_of(request.model)
    return facts is not None and facts.structured_output == FORCED_TOOL


async def forced_output(call: StreamCall, request: Request) -> AsyncGenerator[Batch, None]:
    """The answer of one choice. Raises UnsupportedParameter beside tools of the client: the model could call those."""
    if request.tools:
        why = "this model gives a structured answer by a call, which leaves no room for tools"
        raise UnsupportedParameter.at("response_format", why)
    answer = _Answer()
    async with aclosing(call(_asking(request))) as batches:
        async for batch in batches:
            told = [event for each in batch if (event := answer.told(each)) is not None]
            if told:
                yield told


def _asking(request: Request) -> Request:
    wanted = request.output_format
    assert wanted is not None
    description = _DESCRIPTION if wanted.description is None else f"{_DESCRIPTION} {wanted.description}"
    tool = Tool(kind=FUNCTION, name=_TOOL, description=description, parameters=wanted.schema)
    return replace(
        request,
        output_format=None,
        tools=(tool,),
        tool_choice=ToolChoice(mode=REQUIRED, name=_TOOL),
        parallel_tool_calls=None,
    )


class _Answer:
    """What a model says around the call stays text of its own, which no client asked for: it is left out."""

    def __init__(self) -> None:
        self._part: int | None = None

    def told(self, event: Event) -> Event | None:
        match event:
            case ToolCallStarted():
                self._part = event.part if self._part is None else self._part
                return None
            case ToolArgumentsDelta():
                return TextDelta(event.choice, event.part, event.text) if event.part == self._part else None
            case TextDelta() | ToolCallFinished():
                return None
            case ChoiceFinished() if event.reason is StopReason.TOOL_CALLS:
                return ChoiceFinished(event.choice, StopReason.STOP, event.raw, event.stop)
            case _:
                return event
