"""Media in results of tools for an upstream whose tool messages hold text alone: they go to a user's turn behind them.

A result says where its media stand, so that nothing of it is lost and nothing changes its order.
"""

from msgspec.structs import replace

from adapters.canonical.messages import TOOL, USER, Audio, File, Image, Message, Part, Text, ToolResult, Video
from adapters.canonical.request import Request

__all__ = ["with_media_behind_results"]

_MEDIA = (Image, Audio, Video, File)


def with_media_behind_results(request: Request) -> Request:
    """The request itself where no result of a tool has media."""
    messages = request.messages or ()
    if not any(message.role == TOOL and _has_media(message) for message in messages):
        return request
    moved: list[Message] = []
    behind: list[Part] = []
    for message in messages:
        if message.role == TOOL:
            message = replace(message, parts=tuple([_text_alone(part, behind) for part in message.parts]))
        elif behind:
            moved.append(Message(role=USER, parts=tuple(behind)))
            behind = []
        moved.append(message)
    if behind:
        moved.append(Message(role=USER, parts=tuple(behind)))
    return replace(request, messages=tuple(moved), message_paths=None)


def _has_media(message: Message) -> bool:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    return any(isinstance(each, _MEDIA) for result in results for each in result.parts)


def _text_alone(part: Part, behind: list[Part]) -> Part:
    """The result with a text in place of each medium, which goes to `behind` after a text that names it."""
    if not isinstance(part, ToolResult):
        return part
    told: list[Part] = []
    for each in part.parts:
        if isinstance(each, _MEDIA):
            number = 1 + sum(isinstance(other, _MEDIA) for other in behind)
            name = f"{type(each).__name__.lower()} {number}"
            told.append(Text(text=f"[{name}: in the user's message behind the results]"))
            behind += (Text(text=f"[{name}, of the result of {part.call_id}]"), each)
        else:
            told.append(each)
    return replace(part, parts=tuple(told))
