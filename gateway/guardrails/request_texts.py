"""Every text of a request that a person, a program or a tool wrote, in order; the request with others in place."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from adapters.canonical.messages import Document, File, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.text_files import as_document

__all__ = ["texts_of", "with_texts"]


def texts_of(request: Request) -> list[str]:
    found: list[str] = []
    for message in request.messages or ():
        found += _of_parts(message.parts)
    found += [prompt for prompt in request.prompts or () if isinstance(prompt, str)]
    if request.suffix is not None:
        found.append(request.suffix)
    return found


def with_texts(request: Request, texts: Sequence[str]) -> Request:
    """`texts` are as many as `texts_of` gave."""
    left = iter(texts)
    messages: tuple[Message, ...] | None = None
    if request.messages is not None:
        messages = tuple([replace(message, parts=_with(message.parts, left)) for message in request.messages])
    prompts = request.prompts
    if prompts is not None:
        prompts = tuple([next(left) if isinstance(prompt, str) else prompt for prompt in prompts])
    suffix = next(left) if request.suffix is not None else None
    return replace(request, messages=messages, prompts=prompts, suffix=suffix)


def _of_parts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text() | Refusal() | Reasoning():
                yield part.text
            case File() | Document() if (document := as_document(part)) is not None:
                yield document.text or ""
            case ToolCall():
                yield part.arguments
            case ToolResult():
                yield from _of_parts(part.parts)


def _with(parts: Sequence[Part], texts: Iterator[str]) -> tuple[Part, ...]:
    return tuple([_with_text(part, texts) for part in parts])


def _with_text(part: Part, texts: Iterator[str]) -> Part:
    match part:
        case Text() | Refusal() | Reasoning():
            return _changed(part, next(texts))
        case File() | Document() if (document := as_document(part)) is not None:
            text = next(texts)
            return part if text == document.text else replace(document, text=text)
        case ToolCall():
            arguments = next(texts)
            return part if arguments == part.arguments else replace(part, arguments=arguments)
        case ToolResult():
            return replace(part, parts=_with(part.parts, texts))
        case _:
            return part


def _changed(part: Text | Refusal | Reasoning, text: str) -> Part:
    """What an upstream said about the text no longer holds for another one, nor does its proof."""
    if text == part.text:
        return part
    if isinstance(part, Reasoning):
        return replace(part, text=text, signature=None, encrypted=None, provider_data=None)
    return replace(part, text=text, provider_data=None)
