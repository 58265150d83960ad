"""Watches that a stream ends as laws 3 and 4 say: one finish for every choice, nothing of a choice after its finish."""

from collections.abc import Sequence

from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated
from adapters.canonical.events import (
    ChoiceFinished,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.request import Tool
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.canonical.usage import Usage
from providers.base import Batch

__all__ = ["FinishGuard"]

_FREE = (Started, ProviderReported, PromptReported, ToolCallFinished)
"""What may come after a choice's finish, as reports of usage may."""
_OWN_KINDS = (FUNCTION, CUSTOM)
"""Of tools that the client runs itself."""


class FinishGuard:
    """Sees every batch of one try. Costs one look at the type and one sum an event."""

    __slots__ = ("_broken", "_finished", "_num_choices", "_tools", "uncounted_chars", "undeclared_calls", "usage")

    def __init__(self, num_choices: int, tools: Sequence[Tool] | None = None) -> None:
        self._tools = tools
        self.undeclared_calls = 0
        """Calls of tools that the request does not have. They are passed on as they came."""
        self._num_choices = num_choices
        self._broken = False
        self._finished: set[int] = set()
        self.usage: Usage | None = None
        """The last report that says anything: some have nothing but nulls."""
        self.uncounted_chars = 0
        """Of text, reasoning and arguments since that report."""

    @property
    def complete(self) -> bool:
        """Whether every choice that was asked for has its finish, and nothing after it."""
        return not self._broken and len(self._finished) >= self._num_choices

    def see(self, batch: Batch) -> None:
        """Raises BadUpstreamResponse on a second finish, or on output after the finish."""
        finished = self._finished
        for event in batch:  # most by their very types: an isinstance that says no costs four times as much
            if (type(event) is TextDelta or type(event) is ReasoningDelta) and event.choice not in finished:
                self.uncounted_chars += len(event.text)
            elif type(event) is ChoiceFinished:
                if event.choice in finished:
                    self._broken = True
                    raise BadUpstreamResponse(f"the upstream finished choice {event.choice} twice")
                finished.add(event.choice)
            elif type(event) is UsageReported:
                if event.usage.total_tokens is not None:
                    self.usage, self.uncounted_chars = event.usage, 0
            elif isinstance(event, _FREE):
                continue
            elif event.choice in finished:
                self._broken = True
                raise BadUpstreamResponse(f"the upstream went on with choice {event.choice} after its finish")
            elif type(event) is ToolArgumentsDelta or type(event) is RefusalDelta:
                self.uncounted_chars += len(event.text)
            elif type(event) is ToolCallStarted and event.kind in _OWN_KINDS:
                self.undeclared_calls += all(tool.name != event.name for tool in self._tools or ())

    def close(self) -> None:
        """At the end of the stream. Raises StreamTruncated for a choice without a finish."""
        if not self.complete:
            missing = next(index for index in range(self._num_choices) if index not in self._finished)
            raise StreamTruncated(f"the upstream's answer ended before choice {missing} was finished")
