"""What upstream dialects share about tools: arguments as an object, and which tools a choice leaves."""

from typing import Any, Final

import orjson
from msgspec import DecodeError
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import ToolCall
from adapters.canonical.request import Request, Tool
from adapters.canonical.tool_kinds import CUSTOM
from adapters.raw_json import raw_fields
from adapters.tool_names import decode_reference, named_in

__all__ = [
    "INPUT_MEMBER", "NO_PARAMETERS", "allowed_names", "allowed_tools", "arguments_object", "arguments_text",
    "function_object", "is_object", "told_arguments",
]  # fmt: skip

NO_PARAMETERS = b'{"type":"object","properties":{}}'
"""The schema of a tool that declares none."""
_decode_text = Decoder(str).decode
_NOTHING = (b"", b"null")
_INVALID = "INVALID_JSON"
"""Under this name clients that want an object are told what a model wrote that is none."""
INPUT_MEMBER: Final = "input"
"""Where a model that knows functions alone writes the input of a custom tool: the name of an object's one member."""


def arguments_object(call: ToolCall) -> orjson.Fragment:
    """The arguments as the text that they came in; nothing is an empty object. The input of a custom tool, which is any
    text, is the one member of an object. Raises InvalidRequest for any other."""
    if call.kind == CUSTOM:
        return orjson.Fragment(orjson.dumps({INPUT_MEMBER: call.arguments}))
    text = call.arguments.strip() or "{}"
    if not is_object(text):
        raise InvalidRequest.at("messages", f"the arguments of the tool call '{call.id}' are not a JSON object")
    return orjson.Fragment(text)


def is_object(text: str) -> bool:
    """Whether this is one whole JSON object."""
    try:
        raw_fields(text)
    except (DecodeError, RecursionError):
        return False
    return True


def arguments_text(value: bytes) -> str:
    """The arguments of an answer's call as text, from a JSON value: an object as it came, or one that is written as a
    string, as some hosts do. Nothing is an empty object."""
    if value in _NOTHING:
        return "{}"
    return (_decode_text(value) or "{}") if value.startswith(b'"') else value.decode()


def told_arguments(arguments: str) -> Any:
    """The arguments of an answer's call, for clients that want an object: as they came where they are one."""
    text = arguments.strip()
    if not text or text == "null":
        return {}
    return orjson.Fragment(text) if is_object(text) else {_INVALID: arguments}


def function_object(tool: Tool) -> dict[str, Any]:
    """The declaration of a tool in the words that many share."""
    found: dict[str, Any] = {"name": tool.name}
    if (description := tool.whole_description) is not None:
        found["description"] = description
    found["parameters"] = orjson.Fragment(tool.parameters or NO_PARAMETERS)
    return found


def allowed_names(request: Request) -> list[str] | None:
    """The tools that may be called, where the choice names some (`allowed_tools`)."""
    choice = request.tool_choice
    if choice is None or choice.allowed is None:
        return None
    return [_name_in(reference) for reference in choice.allowed]


def allowed_tools(request: Request) -> tuple[Tool, ...]:
    """The tools without those that the choice forbids."""
    names = allowed_names(request)
    tools = request.tools or ()
    allowed = frozenset(names or ())
    return tools if names is None else tuple([tool for tool in tools if tool.name in allowed])


def _name_in(reference: bytes) -> str:
    return str(named_in(decode_reference(reference)).get("name"))
