"""Answers of a model that calls tools of the gateway: turn by turn, what its calls came to is given back to it, until
it calls nothing more, or something of its client's. Between the router, which answers each turn, and whoever reads."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace as replace_fields
from typing import Any

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import ContentRefused, InvalidRequest, UnsupportedParameter, UpstreamTimeout
from adapters.canonical.events import ChoiceFinished, UsageReported
from adapters.canonical.messages import TOOL, Message, Text, ToolResult
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.tool_kinds import HOSTED, MCP
from adapters.canonical.usage import Usage, usage_of_turns
from adapters.openai.responses.tool_history import CallResult, ToolHistory
from adapters.openai.responses.tool_items import PROTOCOL, CallItem, ToolFault, list_events
from adapters.openai.vocabulary import RESPONSES
from gateway.guardrails.guardrail import Subject
from gateway.routing.fitting import Spelling
from gateway.routing.router import Progress, Router
from gateway.tools.bound_tools import BoundTool
from gateway.tools.server import ToolOutcome, ToolServerError
from gateway.tools.sources import with_setting
from gateway.tools.tool_choice import later_choice
from gateway.tools.tool_servers import ToolServers
from gateway.tools.toolbox import Toolbox, open_toolbox
from gateway.tools.turn import Call, Parts, Turn
from gateway.usage.estimate import unreported_usage
from providers.base import Batch

__all__ = ["ResponseAnswers", "ToolAnswers"]

_MAX_TURNS = 32
"""After this many turns no tool is called any more."""
_MAX_REFUSALS = 2
"""How many turns in a row may end in calls of which none is made."""
_NO_MORE = "Not called: this response may make no more tool calls. Answer with what is known."


class ToolAnswers:
    """`clock` gives seconds of any origin, `redact` hides secrets in a text, `total_s` bounds a response."""

    def __init__(
        self,
        router: Router,
        servers: ToolServers,
        *,
        clock: Callable[[], float],
        redact: Callable[[str], str],
        total_s: float,
    ) -> None:
        self.router = router
        self.servers = servers
        self.clock = clock
        self.redact = redact
        self.total_s = total_s

    def of(self, response_id: str) -> "ResponseAnswers":
        """What answers one response."""
        return ResponseAnswers(self, response_id)

    async def first_request(self, request: Request) -> Request:
        """The request as the model gets it first: with tools that the gateway runs, and calls that it made before."""
        history = ToolHistory(request)
        if not _is_concerned(request, history):
            return request
        natively = await self.is_native(request.model)
        toolbox = await open_toolbox(request, self.servers, natively=natively)
        for server in toolbox.temporary:
            self.servers.retire(server)
        return _expanded(toolbox, history, {}, natively)

    async def is_native(self, model: str) -> bool:
        """Whether every target of the model runs such tools itself, and reads their items."""
        route = await self.router.names.resolve(model)
        found = [target.provider.capabilities(target.model) for target in route.answering]
        return bool(found) and all(RESPONSES in each.forwards and {HOSTED, MCP} <= each.tool_kinds for each in found)


class ResponseAnswers:
    """Gives the answers of one response as the router does."""

    def __init__(self, answers: ToolAnswers, response_id: str) -> None:
        self._answers = answers
        self._response_id = response_id

    def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        history = ToolHistory(request)
        if not _is_concerned(request, history):
            return self._answers.router.stream(request, progress, spell)
        return self._stream(request, history, progress, spell)

    async def _stream(
        self, request: Request, history: ToolHistory, progress: Progress, spell: Spelling
    ) -> AsyncGenerator[Batch, None]:
        answers = self._answers
        natively = await answers.is_native(request.model)
        toolbox = await open_toolbox(request, answers.servers, natively=natively)
        try:
            if toolbox.labels or not natively:
                subject = Subject(request.model, request.request_id, progress.key)
                loop = _Loop(answers, toolbox, self._response_id, max_calls=request.max_tool_calls, subject=subject)
                batches = loop.run(history, natively, progress, spell)
            else:
                batches = answers.router.stream(request, progress, spell)
            async with aclosing(batches):
                async for batch in batches:
                    yield batch
        except UnsupportedParameter as error:
            raise with_setting(error, toolbox.request, answers.servers) from error
        finally:
            for server in toolbox.temporary:
                answers.servers.retire(server)


class _Loop:
    """The turns of one answer."""

    def __init__(
        self, answers: ToolAnswers, toolbox: Toolbox, response_id: str, *, max_calls: int | None, subject: Subject
    ) -> None:
        self._subject = subject
        self._answers = answers
        self._toolbox = toolbox
        self._response_id = response_id
        self._calls_left = max_calls
        self._parts = Parts()
        self._turns: list[Usage] = []
        self._until = answers.clock() + answers.total_s

    async def run(
        self, history: ToolHistory, natively: bool, progress: Progress, spell: Spelling
    ) -> AsyncGenerator[Batch, None]:
        results: dict[str, CallResult] = {}
        pending = self._pending(history, natively)
        batches = self._approved(pending, results)
        async with aclosing(batches):
            async for batch in batches:
                yield batch
        request = _expanded(self._toolbox, history, results, natively)
        held = self._lists(history)
        refusals = 0
        while True:
            turn = self._next_turn()
            async with aclosing(self._answers.router.stream(request, progress, spell)) as turns:
                async for batch in turns:
                    out = held + turn.feed(batch)
                    held = []
                    if out:
                        yield out
            yield [*turn.close(), *self._count(turn, request, progress)]
            made = [call for call in turn.calls if call.item is not None]
            came: dict[str, CallResult] = {}
            if turn.ends_in_calls and made:
                ends = self._made(made, came)
                async with aclosing(ends):
                    async for batch in ends:
                        yield batch
            refusals = refusals + 1 if turn.calls and all(call.is_ignored for call in turn.calls) else 0
            if not self._goes_on(turn, refusals):
                break
            request = self._next_request(request, turn, came)
        assert turn.finish is not None
        yield [turn.finish if not refusals else ChoiceFinished(0, StopReason.STOP), *self._report(progress)]

    def _next_turn(self) -> Turn:
        """Raises UpstreamTimeout where there is no time for one more."""
        if self._turns and self._answers.clock() > self._until:
            raise UpstreamTimeout(f"the answer was not complete within {self._answers.total_s:g} s")
        left = 0 if len(self._turns) >= _MAX_TURNS else self._calls_left
        tools = self._toolbox.tools
        return Turn(tools, self._parts, self._response_id, is_first=not self._turns, calls_left=left)

    def _goes_on(self, turn: Turn, refusals: int) -> bool:
        if not turn.ends_in_calls or turn.calls_client or refusals > _MAX_REFUSALS:
            return False
        return all(call.item is not None or call.is_ignored for call in turn.calls)  # none waits for approval

    def _next_request(self, request: Request, turn: Turn, results: dict[str, CallResult]) -> Request:
        said = turn.message()
        told = [_result_message(call, results.get(call.id, CallResult(_NO_MORE, is_error=True))) for call in turn.calls]
        messages = (*(request.messages or ()), said, *told)
        paths = request.message_paths
        return replace(
            request,
            messages=messages,
            message_paths=None if paths is None else (*paths, *["input"] * (1 + len(told))),
            tool_choice=later_choice(request.tool_choice),
        )

    def _lists(self, history: ToolHistory) -> Batch:
        """The lists of tools that the client has not seen; told with what comes first of the model, before which an
        error may still be told as such."""
        out: Batch = []
        for listing in self._toolbox.listings:
            if listing.label not in history.listed:
                error = None if listing.error is None else self._answers.redact(listing.error)
                out += list_events(self._parts.take(), self._response_id, listing.label, listing.tools, error)
        return out

    def _pending(self, history: ToolHistory, natively: bool) -> Sequence[tuple[Call, str]]:
        """Calls that were approved, with the ids of the requests. Raises InvalidRequest."""
        found = []
        for pending in history.pending():
            if natively and pending.label not in self._toolbox.labels:
                continue  # the provider's own
            tool = self._toolbox.find(pending.label, pending.name)
            if tool is None:
                param = pending.path
                why = f"{param}: there is no tool '{pending.name[:100]}' of '{pending.label[:100]}' in tools"
                raise InvalidRequest(why, param=param)
            found.append((Call(pending.request_id, tool, arguments=pending.arguments), pending.request_id))
        return found

    async def _approved(
        self, pending: Sequence[tuple[Call, str]], results: dict[str, CallResult]
    ) -> AsyncGenerator[Batch, None]:
        """Makes calls that were approved."""
        calls: list[Call] = []
        for call, request_id in pending:
            if self._calls_left == len(calls):
                results[call.id] = CallResult(_NO_MORE, is_error=True)
                continue
            tool = call.tool
            call.item = item = CallItem(
                tool.kind,
                self._parts.take(),
                self._response_id,
                label=tool.label,
                name=tool.tool.name,
                approval=request_id,
            )
            begun = item.begin()
            yield [*begun, *item.add_arguments(call.arguments), *item.close_arguments()]
            calls.append(call)
        async with aclosing(self._made(calls, results)) as batches:
            async for batch in batches:
                yield batch

    async def _made(self, calls: Sequence[Call], results: dict[str, CallResult]) -> AsyncGenerator[Batch, None]:
        """Makes the calls, all at one time, and tells of each how it ended, in their order."""
        if self._calls_left is not None:
            self._calls_left -= len(calls)
        running = [asyncio.ensure_future(self._outcome(call)) for call in calls]
        try:
            for call, task in zip(calls, running, strict=True):
                outcome = await task
                assert call.item is not None
                results[call.id] = CallResult(outcome.text, outcome.fault is not None)
                yield call.item.end(outcome.text, outcome.fault)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _outcome(self, call: Call) -> ToolOutcome:
        """As the model and the client may see it: without secrets, and as guardrails leave it."""
        outcome = await self._call(call.tool, call.arguments)
        redact, fault = self._answers.redact, outcome.fault
        try:
            text = await self._checked(redact(outcome.text))
            if fault is not None:
                fault = replace_fields(fault, message=await self._checked(redact(fault.message)))
        except ContentRefused as error:
            return _failed(error.message)
        return ToolOutcome(text, fault)

    async def _checked(self, text: str) -> str:
        guardrails = self._answers.router.guardrails
        return text if guardrails is None else await guardrails.checked_tool_output(text, self._subject)

    async def _call(self, tool: BoundTool, arguments: str) -> ToolOutcome:
        permitted = self._toolbox.permitted
        if permitted is not None and tool.name not in permitted:
            return _failed("this tool is not among the allowed ones")
        try:
            given: Any = orjson.loads(arguments) if arguments.strip() else {}
        except ValueError:
            return _failed("the arguments are not JSON")
        if not isinstance(given, dict):
            return _failed("the arguments are not a JSON object")
        try:
            return await tool.server.call(tool.tool.name, {**given, **tool.fixed})
        except ToolServerError as error:
            return ToolOutcome(error.fault.message, error.fault)

    def _count(self, turn: Turn, request: Request, progress: Progress) -> Batch:
        """Adds what a turn used."""
        usage = turn.usage
        for event in unreported_usage(request, progress):
            if isinstance(event, UsageReported):
                usage = event.usage
        self._turns.append(usage or Usage())
        return [UsageReported(usage_of_turns(self._turns))]

    def _report(self, progress: Progress) -> Batch:
        """What all turns used, as the last word about it."""
        progress.guard, progress.counted = None, usage_of_turns(self._turns)
        return [UsageReported(progress.counted)]


def _is_concerned(request: Request, history: ToolHistory) -> bool:
    return not history.is_empty or any(tool.raw is not None for tool in request.tools or ())


def _expanded(toolbox: Toolbox, history: ToolHistory, results: dict[str, CallResult], natively: bool) -> Request:
    found = history.expanded(toolbox.name_of, results, lambda label: natively and label not in toolbox.labels)
    changed = toolbox.request
    return replace(changed, messages=found.messages, message_paths=found.message_paths)


def _result_message(call: Call, result: CallResult) -> Message:
    parts = (Text(text=result.text),)
    return Message(role=TOOL, parts=(ToolResult(call_id=call.id, parts=parts, is_error=result.is_error or None),))


def _failed(why: str) -> ToolOutcome:
    return ToolOutcome(why, ToolFault(PROTOCOL, why))
