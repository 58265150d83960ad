"""Answers of servers that leave a model's reasoning and tool calls in the text, where run.yaml names the model's forms.

Owns what such a server is asked for, and the wrapper around its events. The forms are those of `adapters.text`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from adapters.canonical.request import NONE, REQUIRED, Request, ToolChoice
from adapters.minted_ids import new_call_id
from adapters.text.calls.parameter_types import parameter_types
from adapters.text.harmony import HarmonyReader
from adapters.text.marked_events import MarkedEvents
from adapters.text.pipeline import TextPipeline
from adapters.text.reasoning import REASONING_FORMATS, ReasoningFormat, ReasoningSplitter
from adapters.text.tool_calls import TOOL_FORMATS, ToolCallParser, ToolFormat
from providers.base import Batch, ProviderSettings

__all__ = ["MarkedAnswers", "marked_answers"]

_NO_FORMAT: Final = "none"
_NO_EFFORT: Final = "none"


@dataclass(frozen=True, slots=True)
class MarkedAnswers:
    """The forms of a provider's models. `tools_unread`: with tool choice none the server shows tools all the same, and
    reads no calls."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat | None
    tools_unread: bool

    def asked(self, request: Request, supported: frozenset[str]) -> Request:
        """The request as the server gets it: it must not read calls itself, nor leave marks out."""
        if request.messages is None:
            return request
        special = any(form is not None and form.special for form in (self.reasoning, self._tools_read(request)))
        sampling = request.sampling
        if special and sampling.skip_special_tokens is None and "skip_special_tokens" in supported:
            request = replace(request, sampling=replace(sampling, skip_special_tokens=False))
        if self.tools_unread and request.tool_choice is None and self._tools_read(request) is not None:
            request = replace(request, tool_choice=ToolChoice(mode=NONE))
        return request

    def read(self, batches: AsyncGenerator[Batch, None], request: Request) -> AsyncGenerator[Batch, None]:
        """The events of `batches` with parts in place of marks. `request` is the client's. Closing it closes them."""
        if request.messages is None or (self.reasoning is None and self._tools_read(request) is None):
            return batches
        return self._read(batches, request)

    async def _read(self, batches: AsyncGenerator[Batch, None], request: Request) -> AsyncGenerator[Batch, None]:
        marked = MarkedEvents(lambda: self._pipeline(request))
        async with aclosing(batches):
            async for batch in batches:
                read = marked.feed(batch)
                if read:
                    yield read

    def _pipeline(self, request: Request) -> TextPipeline:
        options = request.reasoning
        shows = options is None or options.include is not False
        separates = options is None or options.separate is not False
        parallel = request.parallel_tool_calls is not False
        schemas = {tool.name: tool.parameters for tool in request.tools or ()} if _may_call(request) else {}
        if self.reasoning is not None and self.reasoning.channels and separates:
            reader = HarmonyReader(schemas.keys(), new_call_id, parallel=parallel)
            return TextPipeline(reader, None, shows_reasoning=shows)
        reasoning = calls = None
        if self.reasoning is not None and separates:
            opened = self.reasoning.opened and (options is None or options.effort != _NO_EFFORT)
            reasoning = ReasoningSplitter(self.reasoning, starts_inside=opened)
        tools = self._tools_read(request)
        if tools is not None:

            def types(name: str) -> Mapping[str, frozenset[str]]:
                return parameter_types(schemas[name])

            must_call = request.tool_choice is not None and request.tool_choice.mode == REQUIRED
            calls = ToolCallParser(
                tools, schemas.keys(), new_call_id, types=types, parallel=parallel, must_call=must_call
            )
        return TextPipeline(reasoning, calls, shows_reasoning=shows)

    def _tools_read(self, request: Request) -> ToolFormat | None:
        return self.tools if _may_call(request) else None


def _may_call(request: Request) -> bool:
    return bool(request.tools) and (request.tool_choice is None or request.tool_choice.mode != NONE)


def marked_answers(settings: ProviderSettings, *, tools_unread: bool) -> MarkedAnswers | None:
    """What run.yaml says; None where the server takes its answers apart itself. Raises ValueError, naming the key."""
    reasoning = _named(settings, "reasoning_format", REASONING_FORMATS)
    tools = _named(settings, "tool_format", TOOL_FORMATS)
    found = MarkedAnswers(REASONING_FORMATS.get(reasoning), TOOL_FORMATS.get(tools), tools_unread)
    return None if found.reasoning is None and found.tools is None else found


def _named(settings: ProviderSettings, key: str, known: Mapping[str, object]) -> str:
    name = settings.options.get(key)
    if name is None:
        return _NO_FORMAT
    if not isinstance(name, str) or (name != _NO_FORMAT and name not in known):
        names = ", ".join(sorted(known))
        raise ValueError(f"providers.{settings.name}.{key}: no format is named {name!r}, expected {names} or none")
    return name
