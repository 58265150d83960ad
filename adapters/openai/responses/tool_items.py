"""Items of calls that the gateway itself makes for a model, to MCP servers or to what stands in for hosted tools: what
each is, and the events of its life. They travel as a provider's hosted items do.

Sources: the openai SDK 3.57 types of these items and events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from adapters.canonical.events import Event, HostedToolEvent
from adapters.openai.responses.output import item_id
from adapters.openai.responses.vocabulary import ITEM_ADDED
from adapters.openai.vocabulary import RESPONSES

__all__ = [
    "APPROVAL_REQUEST",
    "APPROVAL_RESPONSE",
    "CODE_INTERPRETER",
    "EXECUTION",
    "FILE_SEARCH",
    "HOSTED_CALLS",
    "HTTP",
    "LIST_TOOLS",
    "MCP_CALL",
    "PROTOCOL",
    "WEB_SEARCH",
    "CallItem",
    "ListedTool",
    "ToolFault",
    "approval_events",
    "list_events",
    "tool_item_id",
]

MCP_CALL = "mcp_call"
LIST_TOOLS = "mcp_list_tools"
APPROVAL_REQUEST = "mcp_approval_request"
APPROVAL_RESPONSE = "mcp_approval_response"
WEB_SEARCH = "web_search"
FILE_SEARCH = "file_search"
CODE_INTERPRETER = "code_interpreter"
HOSTED_CALLS = {f"{kind}_call": kind for kind in (WEB_SEARCH, FILE_SEARCH, CODE_INTERPRETER)}
"""Types of items, and the hosted tools that they are calls of."""

PROTOCOL = "mcp_protocol_error"
EXECUTION = "mcp_tool_execution_error"
HTTP = "http_error"

_PREFIXES = {
    MCP_CALL: "mcp",
    LIST_TOOLS: "mcpl",
    APPROVAL_REQUEST: "mcpr",
    WEB_SEARCH: "ws",
    FILE_SEARCH: "fs",
    CODE_INTERPRETER: "ci",
}
_WORKING = {WEB_SEARCH: "searching", FILE_SEARCH: "searching", CODE_INTERPRETER: "interpreting"}
_QUERIES = ("query", "q", "queries", "search_query", "question")
_CODES = ("code", "script", "source", "input")


@dataclass(frozen=True, slots=True)
class ToolFault:
    """Why a call failed. `kind` is one of the API's three words, `code` a number of the protocol or of HTTP."""

    kind: str
    message: str
    code: int = 0

    def object(self) -> dict[str, Any]:
        if self.kind == EXECUTION:
            return {"type": EXECUTION, "content": [{"type": "text", "text": self.message}]}
        return {"type": self.kind, "code": self.code, "message": self.message}


class ListedTool(Protocol):
    """One tool of a server, as it is listed; `schema` and `annotations` are raw JSON."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str | None: ...

    @property
    def schema(self) -> bytes: ...

    @property
    def annotations(self) -> bytes | None: ...


def tool_item_id(kind: str, response_id: str, part: int) -> str:
    """The id of the item that is this part of the answer."""
    return item_id(_PREFIXES[kind], response_id, part)


def list_events(
    part: int, response_id: str, label: str, tools: Sequence[ListedTool], error: str | None = None
) -> list[Event]:
    """A server's list of tools, or why there is none."""
    found = tool_item_id(LIST_TOOLS, response_id, part)
    item: dict[str, Any] = {"id": found, "type": LIST_TOOLS, "server_label": label, "tools": []}
    begun = _event(part, ITEM_ADDED, item)
    item["tools"] = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": orjson.Fragment(tool.schema),
            "annotations": None if tool.annotations is None else orjson.Fragment(tool.annotations),
        }
        for tool in tools
    ]
    if error is not None:
        item["error"] = error
    end = "completed" if error is None else "failed"
    return [
        begun,
        _event(part, "response.mcp_list_tools.in_progress", {"item_id": found}),
        _event(part, f"response.mcp_list_tools.{end}", {"item_id": found}),
        _event(part, LIST_TOOLS, item),
    ]


def approval_events(part: int, response_id: str, *, label: str, name: str, arguments: str) -> list[Event]:
    """The question whether a call may be made."""
    item = {
        "id": tool_item_id(APPROVAL_REQUEST, response_id, part),
        "type": APPROVAL_REQUEST,
        "server_label": label,
        "name": name,
        "arguments": arguments,
    }
    return [_event(part, ITEM_ADDED, item), _event(part, APPROVAL_REQUEST, item)]


class CallItem:
    """One call. `kind` is MCP_CALL, or the hosted tool in whose place it stands; `shows` says whether the client asked
    for what that found; `approval` is the id of the question that was answered with yes."""

    def __init__(
        self,
        kind: str,
        part: int,
        response_id: str,
        *,
        label: str,
        name: str,
        shows: bool = False,
        approval: str | None = None,
    ) -> None:
        self.id = tool_item_id(kind, response_id, part)
        self.part = part
        self.arguments = ""
        self._kind = kind
        self._response_id = response_id
        self._label = label
        self._name = name
        self._shows = shows
        self._approval = approval
        self._is_closed = False
        self._type = kind if kind == MCP_CALL else f"{kind}_call"

    def begin(self) -> list[Event]:
        return [self._own(ITEM_ADDED, self._item("in_progress")), self._say("in_progress")]

    def add_arguments(self, text: str) -> list[Event]:
        """A piece of what the model says to the tool."""
        self.arguments += text
        return [self._own("response.mcp_call_arguments.delta", self._at(delta=text))] if self._kind == MCP_CALL else []

    def close_arguments(self) -> list[Event]:
        """What the model says to the tool is whole."""
        self._is_closed = True
        if self._kind == MCP_CALL:
            return [self._own("response.mcp_call_arguments.done", self._at(arguments=self.arguments))]
        events: list[Event] = []
        if self._kind == CODE_INTERPRETER:
            code = _first_text(self.arguments, _CODES)
            name = "response.code_interpreter_call_code"
            if code:
                events.append(self._own(f"{name}.delta", self._at(delta=code)))
            events.append(self._own(f"{name}.done", self._at(code=code)))
        return [*events, self._say(_WORKING[self._kind])]

    def end(self, output: str, fault: ToolFault | None) -> list[Event]:
        """It came to this."""
        if self._kind == MCP_CALL:
            told = [self._say("completed" if fault is None else "failed")]
        else:
            told = [self._say("completed")] if fault is None else []
        item = self._item("completed" if fault is None else "failed", output, fault)
        return [*told, self._own(self._type, item)]

    def cut(self) -> list[Event]:
        """The answer ended before the call was made."""
        told = [] if self._is_closed else self.close_arguments()
        return [*told, self._own(self._type, self._item("incomplete"))]

    def _item(self, status: str, output: str | None = None, fault: ToolFault | None = None) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self.id, "type": self._type, "status": status}
        shown = output if self._shows and fault is None else None
        match self._kind:
            case "web_search":
                query = _first_text(self.arguments, _QUERIES)
                item["action"] = {"type": "search", "query": query, "queries": [query] if query else []}
            case "file_search":
                query = _first_text(self.arguments, _QUERIES)
                item["queries"] = [query] if query else []
                found = {"file_id": "", "filename": "", "text": shown}
                item["results"] = None if shown is None else [found]
            case "code_interpreter":
                item["container_id"] = f"cntr_{self._label}"
                item["code"] = _first_text(self.arguments, _CODES) if status != "in_progress" else ""
                item["outputs"] = None if shown is None else [{"type": "logs", "logs": shown}]
            case _:
                item.update(server_label=self._label, name=self._name, arguments=self.arguments)
                item["output"] = output if fault is None else None
                item["error"] = None if fault is None else fault.object()
                item["approval_request_id"] = self._approval
        return item

    def _say(self, state: str) -> Event:
        return self._own(f"response.{self._type}.{state}", self._at())

    def _at(self, **fields: str) -> dict[str, Any]:
        return {"item_id": self.id, **fields}

    def _own(self, name: str, fields: Mapping[str, Any]) -> Event:
        return _event(self.part, name, fields)


def _event(part: int, name: str, fields: Mapping[str, Any]) -> Event:
    return HostedToolEvent(0, part, name, orjson.dumps(fields), RESPONSES)


def _first_text(arguments: str, names: Sequence[str]) -> str:
    """What stands under the first of these names, or else the first text there is."""
    try:
        found = orjson.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(found, dict):
        return arguments
    ordered = [found[name] for name in names if name in found] + list(found.values())
    for value in ordered:
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return " ".join(value)
    return ""
