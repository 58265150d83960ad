"""Messages as a target takes them: which of their parts, and which of their unmapped fields."""

from msgspec.structs import replace

from adapters.anthropic.readable_blocks import as_text
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import Document, File, Message, Opaque, Part, Reasoning, Text, ToolResult
from adapters.canonical.request import Request
from adapters.hints import is_hint
from adapters.openai.responses.readable_items import item_as_text
from adapters.text_files import as_plain_text
from gateway.routing.fitting import Fitting
from providers.base import Capabilities

__all__ = ["fit_message_extras", "fit_parts"]


def fit_parts(request: Request, messages: tuple[Message, ...], fitting: Fitting) -> Request:
    """Raises UnsupportedParameter for a part that the target does not take. Thoughts are no part of what was said, nor
    is what only another dialect can read; what can be read elsewhere is told as text."""
    capabilities = fitting.capabilities
    without: dict[int, Message] = {}
    for index, message in enumerate(messages):
        parts = message.parts
        refused = _refused(parts, capabilities)
        if type(refused) is Reasoning:
            parts = tuple([part for part in parts if type(part) is not Reasoning])
            without[index] = replace(message, parts=parts)
            refused = _refused(parts, capabilities)
        if refused is None:
            continue
        path = request.message_path(index, fitting.spell("messages"))
        while refused is not None:
            text = _told(refused)
            if text is None:
                if not isinstance(refused, Opaque):
                    kind = type(refused).__name__.lower()
                    raise UnsupportedParameter.at(path, f"the model does not take {kind} parts")
                if is_hint(request.dialect, refused.type, refused.raw):
                    fitting.hints.append(f"{path}.{refused.type}")
                elif not refused.is_told:
                    fitting.dropped.append(path)
            parts = _replaced(parts, refused, text)
            without[index] = replace(message, parts=parts)
            refused = _refused(parts, capabilities)
    if not without:
        return request
    kept = [(index, without.get(index, message)) for index, message in enumerate(messages)]
    return request.with_messages(
        [(index, message) for index, message in kept if message.parts or not messages[index].parts]
    )


def fit_message_extras(request: Request, messages: tuple[Message, ...], fitting: Fitting) -> Request:
    """Without the unmapped fields of messages that the target does not know."""
    fitted: list[Message] | None = None
    for index, message in enumerate(messages):
        if message.extras is not None and (foreign := fitting.foreign(message.extras)):
            path = request.message_path(index, fitting.spell("messages"))
            for name, raw in foreign.items():
                fitting.leave_out(f"messages[].{name}", raw, f"{path}.{name}")
            fitted = fitted or list(messages)
            fitted[index] = replace(message, extras=None)
    return request if fitted is None else replace(request, messages=tuple(fitted))


def _told(part: Part) -> Text | None:
    """What any model can read of a part."""
    match part:
        case Opaque():
            return as_text(part) or item_as_text(part)
        case File() | Document():
            return as_plain_text(part)
        case _:
            return None


def _replaced(parts: tuple[Part, ...], old: Part, new: Part | None) -> tuple[Part, ...]:
    """The parts with another one, or none, in place of one of them or of what stands in a tool's result."""
    found: list[Part] = []
    for part in parts:
        if part is not old:
            found.append(replace(part, parts=_replaced(part.parts, old, new)) if type(part) is ToolResult else part)
        elif new is not None:
            found.append(new)
    return tuple(found)


def _refused(parts: tuple[Part, ...], capabilities: Capabilities) -> Part | None:
    """The first part, also inside of a tool's result, of a kind that is not taken."""
    for part in parts:
        if type(part) is Opaque and part.type in capabilities.foreign_parts:
            continue
        if type(part) not in capabilities.parts:
            return part
        if type(part) is Opaque and part.origin not in capabilities.forwards:
            return part
        if type(part) is Document and part.source is not None and File not in capabilities.parts:
            return part
        if type(part) is ToolResult and (inner := _refused(part.parts, capabilities)) is not None:
            return inner
    return None
