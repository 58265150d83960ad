"""The conversation towards Cohere: canonical messages -> its messages, one for one.

What an assistant says beside its calls is its plan here. A result that failed says so in its text.
"""

from typing import Any, assert_never

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Audio,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
    plain_parts,
)
from adapters.canonical.request import Request
from adapters.inline_media import data_url

__all__ = ["message_objects"]

_PARAM = "messages"
_ROLES = {SYSTEM: "system", DEVELOPER: "system", USER: "user", ASSISTANT: "assistant"}


def message_objects(request: Request, provider: str) -> list[dict[str, Any]]:
    """`provider` is the name of the one that is asked: what another one thought stays here.

    Raises InvalidRequest for a result that answers no call, naming the id.
    """
    found: list[dict[str, Any]] = []
    open_calls: set[str] = set()
    for message in request.messages or ():
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        for result in results:
            if result.call_id not in open_calls:
                said = f"{_PARAM}: the tool result '{result.call_id}' answers no open call"
                raise InvalidRequest(said, param=_PARAM)
            open_calls.discard(result.call_id)
            found.append(_result(result))
        rest = tuple([part for part in message.parts if not isinstance(part, ToolResult)])
        if rest or not results:
            made = _message(message, rest, provider)
            open_calls |= {call["id"] for call in made.get("tool_calls", ())}
            if len(made) > 1:
                found.append(made)
    if not found:
        raise InvalidRequest.at(_PARAM, "expected a message that says something")
    return found


def _message(message: Message, parts: tuple[Part, ...], provider: str) -> dict[str, Any]:
    role = _ROLES.get(message.role, USER if message.role == TOOL else None)
    if role is None:
        raise UnsupportedParameter.at(_PARAM, f"Cohere has no role {message.role}")
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, ToolCall):
            made = {"name": part.name, "arguments": part.arguments.strip() or "{}"}
            calls.append({"id": part.id, "type": "function", "function": made})
        elif isinstance(part, Reasoning):
            if part.origin in (None, provider) and part.text:
                content.append({"type": "thinking", "thinking": part.text})
        else:
            content += _blocks(part)
    if message.name is not None and role == USER and content and content[0]["type"] == "text":
        content[0]["text"] = f"{message.name}: {content[0]['text']}"
    found: dict[str, Any] = {"role": role}
    if calls:
        plan = "".join([block["text"] for block in content if block["type"] == "text"])
        content = [block for block in content if block["type"] != "text"]
        found["tool_calls"] = calls
        if plan:
            found["tool_plan"] = plan
    if content:
        found["content"] = _plain(content)
    return found


def _plain(content: list[dict[str, Any]]) -> Any:
    """One text is a string."""
    return content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content


def _blocks(part: Part) -> list[dict[str, Any]]:
    """None of them for what says nothing."""
    match part:
        case Text() | Refusal():
            return [{"type": "text", "text": part.text}] if part.text else []
        case Image():
            return [{"type": "image_url", "image_url": _image(part)}]
        case Document() if (plain := plain_parts(part)) is not None:
            return [block for inner in plain for block in _blocks(inner)]
        case Audio() | Video() | File() | Document() | Opaque() | Reasoning() | ToolCall() | ToolResult():
            kind = type(part).__name__.lower()
            raise UnsupportedParameter.at(_PARAM, f"Cohere takes no {kind} parts")
        case _:
            assert_never(part)


def _image(image: Image) -> dict[str, Any]:
    if image.source.url is None and image.source.data is None:
        raise UnsupportedParameter.at(_PARAM, "Cohere takes images by address or as data, not by id")
    url = data_url(image.source, "image/png")
    return {"url": url} if image.detail is None else {"url": url, "detail": image.detail}


def _result(result: ToolResult) -> dict[str, Any]:
    texts: list[str] = []
    for part in result.parts:
        if not isinstance(part, Text | Refusal):
            raise UnsupportedParameter.at(_PARAM, "Cohere takes text alone in a tool's result")
        texts.append(part.text)
    text = "\n".join(texts)
    return {
        "role": TOOL,
        "tool_call_id": result.call_id,
        "content": f"Error: {text}" if result.is_error else text,
    }
