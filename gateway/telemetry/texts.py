"""The texts of a request and its answer for a span, where run.yaml says `content: on`; nowhere else.

In the form of the conventions' `gen_ai.input.messages` and `gen_ai.output.messages`; media is named, not copied.
"""

from collections.abc import Callable, Sequence

import orjson

from adapters.canonical.errors import StreamTruncated
from adapters.canonical.messages import Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.canonical.result import Folder
from providers.base import Batch

__all__ = ["Texts"]

_MAX_CHARS = 64 * 1024
"""Of either side; the rest is cut off."""


class Texts:
    """Of one request. `redact` hides secrets in a text."""

    __slots__ = ("_folder", "_redact", "_request")

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._request: Request | None = None
        self._folder = Folder()

    def asked(self, request: Request) -> None:
        self._request = request

    def feed(self, batch: Batch) -> None:
        self._folder.feed(batch)

    @property
    def input(self) -> str:
        request = self._request
        if request is None:
            return "[]"
        if request.messages is not None:
            return self._json([_message(message) for message in request.messages])
        prompts = [prompt for prompt in request.prompts or () if isinstance(prompt, str)]
        return self._json([_text_message("user", prompt) for prompt in prompts])

    @property
    def output(self) -> str:
        """Empty for an answer that broke off."""
        try:
            choices = self._folder.result().choices
        except StreamTruncated:
            choices = ()
        return self._json(
            [
                {"role": "assistant", "parts": _parts(choice.parts), "finish_reason": choice.finish.reason.value}
                for choice in choices
            ]
        )

    def _json(self, messages: Sequence[object]) -> str:
        return self._redact(orjson.dumps(messages).decode()[:_MAX_CHARS])


def _message(message: Message) -> dict[str, object]:
    return {"role": message.role, "parts": _parts(message.parts)}


def _text_message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _parts(parts: Sequence[Part]) -> list[dict[str, object]]:
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, object]:
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": part.text}
        case Reasoning():
            return {"type": "reasoning", "content": part.text or ""}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": _parts(part.parts)}
        case _:
            return {"type": type(part).__name__.lower()}
