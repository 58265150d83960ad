"""Calls that a gateway made in earlier turns, as models have them: from items of the Responses API, which only servers
of that API read, to calls and their results. Pure; what is approved is called elsewhere."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import ASSISTANT, TOOL, Message, Opaque, Part, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.json_fields import told
from adapters.openai.responses import tool_items as words
from adapters.openai.responses.tool_items import HOSTED_CALLS
from adapters.openai.vocabulary import RESPONSES

__all__ = ["CallResult", "PendingCall", "ToolHistory", "plain_messages"]

_NOT_APPROVED = "The user did not approve this call."
_CUT = "The call was not made."


class _Item(Struct):
    id: str = ""
    server_label: str = ""
    name: str = ""
    arguments: str = ""
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    approve: bool = False
    reason: str | None = None
    queries: Any = None
    code: Any = None
    results: Any = None
    outputs: Any = None


_ITEM = Decoder(_Item)
_KNOWN = frozenset((words.MCP_CALL, words.LIST_TOOLS, words.APPROVAL_REQUEST, words.APPROVAL_RESPONSE, *HOSTED_CALLS))


@dataclass(frozen=True, slots=True)
class CallResult:
    """What the model sees of a call."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that was approved and is still to be made. `path` is where the approval stands."""

    request_id: str
    label: str
    name: str
    arguments: str
    path: str


class ToolHistory:
    """The items of tools among a request's messages. Raises InvalidRequest, naming the path."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._items: dict[int, _Item] = {}
        self._asked: dict[str, _Item] = {}
        self._answers: dict[str, tuple[_Item, str]] = {}
        self._made: set[str] = set()
        self._late: set[str] = set()
        """Requests that were answered after the model had said more: their calls stand where the answers do."""
        self.listed: set[str] = set()
        """The labels of servers whose tools are listed already."""
        open_requests: set[str] = set()
        for place, message in enumerate(request.messages or ()):
            path = request.message_path(place, "input")
            if open_requests and message.role == ASSISTANT:
                self._late |= open_requests
            for part in message.parts:
                if _is_known(part):
                    self._take(part, path)
            if self._asked:
                open_requests = self._asked.keys() - self._answers.keys()

    @property
    def is_empty(self) -> bool:
        return not self._items

    def _take(self, part: Opaque, path: str) -> None:
        try:
            item = _ITEM.decode(part.raw)
        except msgspec.DecodeError as error:
            raise InvalidRequest.at(path, f"not an item of the type {part.type}: {told(error)}") from error
        self._items[id(part)] = item
        match part.type:
            case words.LIST_TOOLS:
                self.listed.add(item.server_label)
            case words.APPROVAL_REQUEST:
                self._asked[item.id] = item
            case words.APPROVAL_RESPONSE:
                self._answers[item.approval_request_id or ""] = (item, path)
            case words.MCP_CALL if item.approval_request_id is not None:
                self._made.add(item.approval_request_id)

    def pending(self) -> Iterator[PendingCall]:
        """The calls that are to be made before anything else."""
        for request_id, (answer, path) in self._answers.items():
            asked = self._asked.get(request_id)
            if asked is None:
                param = f"{path}.approval_request_id"
                raise InvalidRequest.at(param, f"there is no approval request '{request_id[:100]}'")
            if answer.approve and request_id not in self._made:
                yield PendingCall(request_id, asked.server_label, asked.name, asked.arguments, path)

    def expanded(
        self,
        name_of: Callable[[str, str], str],
        results: Mapping[str, CallResult],
        stays: Callable[[str], bool],
    ) -> Request:
        """The request with calls and their results in place of the items.

        `name_of` gives a tool's name for the model by its server and own name (of a hosted tool: "" and its type),
        `results` are those of pending calls by the ids of their requests. Items of servers for which `stays` says so
        (by label) go on to a target that knows them.
        """
        if self.is_empty:
            return self._request
        found = [
            (place, made)
            for place, message in enumerate(self._request.messages or ())
            for made in self._expand(message, name_of, results, stays)
        ]
        return self._request.with_messages(found)

    def _expand(
        self,
        message: Message,
        name_of: Callable[[str, str], str],
        results: Mapping[str, CallResult],
        stays: Callable[[str], bool],
    ) -> list[Message]:
        if not any(_is_known(part) for part in message.parts):
            return [message]
        found: list[Message] = []
        said: list[Part] = []
        answers: list[ToolResult] = []

        def turn() -> None:
            if said:
                found.append(replace(message, role=ASSISTANT if answers else message.role, parts=tuple(said)))
                said.clear()
            found.extend([Message(role=TOOL, parts=(answer,)) for answer in answers])
            answers.clear()

        for part in message.parts:
            if not _is_known(part):
                if answers and not isinstance(part, ToolCall):
                    turn()
                said.append(part)
                continue
            item = self._items[id(part)]
            label = self._label_of(part.type, item)
            if stays(label):
                said.append(part)
                continue
            kind = part.type
            if kind == words.APPROVAL_REQUEST and item.id in self._late:
                continue
            if kind == words.APPROVAL_RESPONSE and item.approval_request_id in self._late:
                kind, item = words.APPROVAL_REQUEST, self._asked[item.approval_request_id]
            result = self._result_of(kind, item, results)
            if result is not None:
                name = name_of(label, item.name or HOSTED_CALLS.get(kind, ""))
                said.append(ToolCall(id=item.id, name=name, arguments=_arguments(kind, item)))
                text = Text(text=result.text)
                answers.append(ToolResult(call_id=item.id, parts=(text,), is_error=result.is_error or None))
        turn()
        return found

    def _label_of(self, kind: str, item: _Item) -> str:
        if kind == words.APPROVAL_RESPONSE:
            asked = self._asked.get(item.approval_request_id or "")
            return "" if asked is None else asked.server_label
        return item.server_label

    def _result_of(self, kind: str, item: _Item, results: Mapping[str, CallResult]) -> CallResult | None:
        """None where the item is no call, or one of which nothing came."""
        match HOSTED_CALLS.get(kind, kind):
            case words.MCP_CALL:
                if item.output is not None:
                    return CallResult(item.output, is_error=False)
                return CallResult(_CUT if item.error is None else _error_text(item.error), is_error=True)
            case words.APPROVAL_REQUEST if item.id in results:
                return results[item.id]
            case words.APPROVAL_REQUEST if item.id in self._answers and item.id not in self._made:
                reason = self._answers[item.id][0].reason
                return CallResult(f"{_NOT_APPROVED} {reason or ''}".strip(), is_error=True)
            case words.FILE_SEARCH if item.results:
                return CallResult(_texts(item.results), is_error=False)
            case words.CODE_INTERPRETER if item.outputs:
                return CallResult(_texts(item.outputs), is_error=False)
            case _:
                return None


def plain_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages as chat has them: items of calls that somebody made for the model as calls and results, without
    items that only this dialect has."""
    history = ToolHistory(Request(model="", dialect=RESPONSES, messages=tuple(messages)))
    found = history.expanded(lambda label, name: name, {}, lambda label: False).messages or ()
    plain = [
        replace(message, parts=tuple([part for part in message.parts if type(part) is not Opaque])) for message in found
    ]
    return [message for message, before in zip(plain, found, strict=True) if message.parts or not before.parts]


def _is_known(part: Part) -> TypeGuard[Opaque]:
    return type(part) is Opaque and part.origin == RESPONSES and part.type in _KNOWN


def _arguments(kind: str, item: _Item) -> str:
    match HOSTED_CALLS.get(kind):
        case words.FILE_SEARCH:
            return msgspec.json.encode({"query": _texts(item.queries)}).decode()
        case words.CODE_INTERPRETER:
            return msgspec.json.encode({"code": item.code if isinstance(item.code, str) else ""}).decode()
        case _:
            return item.arguments or "{}"


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or _texts(error.get("content")))
    return str(error)


def _texts(found: Any) -> str:
    """The texts in a list of objects, or of texts."""
    if not isinstance(found, list):
        return "" if found is None else str(found)
    texts = []
    for one in found:
        value = (one.get("text") or one.get("logs")) if isinstance(one, dict) else one
        if isinstance(value, str):
            texts.append(value)
    return "\n".join(texts)
