"""One turn of a model that may call tools of the gateway: its events, with the calls to these as items of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from adapters.canonical.errors import StreamTruncated
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    Started,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ASSISTANT, Message, Part, ToolCall
from adapters.canonical.result import Folder
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.openai.responses.tool_items import CallItem, approval_events
from gateway.tools.bound_tools import BoundTool
from providers.base import Batch

__all__ = ["Call", "Parts", "Turn"]

_ENDS_IN_CALLS = (StopReason.STOP, StopReason.TOOL_CALLS, StopReason.OTHER)


class Parts:
    """Numbers the parts of the whole answer, in the order in which they are told."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        self._next += 1
        return self._next - 1


@dataclass(slots=True)
class Call:
    """A call of the model to a tool of the gateway. `item` None: it is only asked for, or not made at all."""

    id: str
    tool: BoundTool
    item: CallItem | None = None
    arguments: str = ""
    is_ignored: bool = False


class Turn:
    """`calls_left`: how many calls may still be made; None: any number."""

    def __init__(
        self, tools: Mapping[str, BoundTool], parts: Parts, response_id: str, *, is_first: bool, calls_left: int | None
    ) -> None:
        self.calls: list[Call] = []
        self.finish: ChoiceFinished | None = None
        self.usage: Usage | None = None
        self.calls_client = False
        """A tool of the client is called as well."""
        self._tools = tools
        self._parts = parts
        self._response_id = response_id
        self._is_first = is_first
        self._calls_left = calls_left
        self._folder = Folder()
        self._numbers: dict[int, int] = {}
        self._open: dict[int, Call] = {}

    @property
    def ends_in_calls(self) -> bool:
        """Whether its calls are whole and to be made."""
        return bool(self.calls) and self.finish is not None and self.finish.reason in _ENDS_IN_CALLS

    def feed(self, batch: Batch) -> Batch:
        self._folder.feed(batch)
        out: Batch = []
        for event in batch:
            match event:
                case Started() | PromptReported():
                    if self._is_first:
                        out.append(event)
                case ProviderReported():
                    out.append(event)
                case ChoiceFinished():
                    self.finish = event
                case UsageReported():
                    self.usage = event.usage
                case ToolCallStarted() if event.name in self._tools:
                    out += self._begin(event)
                case ToolCallStarted():
                    self.calls_client = True
                    out.append(self._renumbered(event, event.part))
                case ToolArgumentsDelta() if event.part in self._open:
                    call = self._open[event.part]
                    call.arguments += event.text
                    if call.item is not None and event.text:
                        out += call.item.add_arguments(event.text)
                case ToolCallFinished() if event.part in self._open:
                    out += self._end(self._open.pop(event.part))
                case _:
                    out.append(self._renumbered(event, event.part))
        return out

    def close(self) -> Batch:
        """What is left to tell at its end. Raises StreamTruncated where it has none."""
        if self.finish is None:
            raise StreamTruncated("the upstream's answer has no finish")
        out: Batch = []
        if self.finish.reason in _ENDS_IN_CALLS:
            for call in self._open.values():
                out += self._end(call)
        else:
            for call in self.calls:
                out += call.item.cut() if call.item is not None else []
        self._open.clear()
        return out

    def message(self) -> Message:
        """What the model said, for the next turn."""
        parts = self._folder.result().choices[0].parts
        return Message(role=ASSISTANT, parts=tuple([_whole(part) for part in parts]))

    def _begin(self, event: ToolCallStarted) -> Sequence[Event]:
        tool = self._tools[event.name]
        call = Call(event.id, tool)
        made = sum(not each.is_ignored for each in self.calls)
        call.is_ignored = self._calls_left is not None and made >= self._calls_left
        self.calls.append(call)
        self._open[event.part] = call
        if call.is_ignored or tool.needs_approval:
            return ()
        call.item = CallItem(
            tool.kind, self._parts.take(), self._response_id, label=tool.label, name=tool.tool.name, shows=tool.shows
        )
        return call.item.begin()

    def _end(self, call: Call) -> Sequence[Event]:
        if call.item is not None:
            return call.item.close_arguments()
        if call.is_ignored:
            return ()
        return approval_events(
            self._parts.take(),
            self._response_id,
            label=call.tool.label,
            name=call.tool.tool.name,
            arguments=call.arguments,
        )

    def _renumbered(self, event: Event, part: int) -> Event:
        number = self._numbers.get(part)
        if number is None:
            number = self._numbers[part] = self._parts.take()
        return event if number == part else replace(event, part=number)


def _whole(part: Part) -> Part:
    """A call as upstreams take it back."""
    return replace(part, arguments="{}") if isinstance(part, ToolCall) and not part.arguments else part
