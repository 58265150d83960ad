"""How many tokens a text has, guessed from its length: before a request runs, and where an upstream does not say.

No tokenizer: this runs on every request with limits. English has about four characters a token, code a little less;
other scripts have about two. A text's own flag tells the one from the other without a look at it.
"""

from typing import assert_never

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.events import Event, UsageReported
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Prompt, Request
from adapters.canonical.rerank import RerankRequest, ScoreRequest
from adapters.canonical.usage import Usage
from gateway.routing.progress import Progress

__all__ = [
    "DEFAULT_OUTPUT_TOKENS",
    "estimated_usage",
    "output_tokens",
    "prompt_tokens",
    "text_tokens",
    "unreported_usage",
    "with_prompt",
    "with_uncounted",
]

DEFAULT_OUTPUT_TOKENS = 512
"""What a request that names no `max_tokens` is expected to write."""
_MEDIA_TOKENS = 800
"""An image of middling size; of other media nothing better is known."""
_MESSAGE_TOKENS = 4
_ASCII_CHARS, _OTHER_CHARS = 4, 2


def text_tokens(text: str) -> int:
    """A guess that is never 0 for a text."""
    return -(-len(text) // (_ASCII_CHARS if text.isascii() else _OTHER_CHARS))


def prompt_tokens(request: object) -> int:
    """Of a request of any kind; 0 for one that reads no text."""
    if not isinstance(request, Request):
        return _input_tokens(request)
    total = 0 if request.prompts is None else _prompts_tokens(request.prompts)
    for message in request.messages or ():
        total += _MESSAGE_TOKENS
        for part in message.parts:
            if type(part) is Text:  # as nearly all are; a call for each would cost more than the sum
                text = part.text
                total += -(-len(text) // (_ASCII_CHARS if text.isascii() else _OTHER_CHARS))
            else:
                total += _part_tokens(part)
    for tool in request.tools or ():
        total += (
            _MESSAGE_TOKENS + (len(tool.description or "") + len(tool.parameters or tool.raw or b"")) // _ASCII_CHARS
        )
    return total


def output_tokens(request: object) -> int:
    """The most that it may write, where it says so."""
    if not isinstance(request, Request):
        return 0
    limit = DEFAULT_OUTPUT_TOKENS if request.max_tokens is None else request.max_tokens
    if request.n is None and request.best_of is None and request.prompts is None:
        return limit
    return limit * max(request.num_choices, request.best_of or 1)


def estimated_usage(request: object, written_chars: int) -> Usage:
    """What an upstream did not report, marked."""
    return Usage(
        prompt_tokens=prompt_tokens(request),
        completion_tokens=-(-written_chars // _ASCII_CHARS) if isinstance(request, Request) else None,
        estimated=True,
    )


def unreported_usage(request: Request, progress: Progress) -> list[Event]:
    """What a good answer used, as its last event, where its upstream did not say; nothing where it did."""
    guard = progress.guard
    if guard is None:
        return []
    told = guard.usage
    if told is None:
        return [UsageReported(estimated_usage(request, guard.uncounted_chars))]
    whole = with_prompt(told, request)
    return [] if whole is told else [UsageReported(whole)]


def with_prompt(told: Usage, request: object) -> Usage:
    """What an upstream reported, with the prompt where it left that out: Ollama counts no prompt that it had cached."""
    if told.prompt_tokens is not None or not told.completion_tokens:
        return told
    return replace(told, prompt_tokens=prompt_tokens(request), estimated=True)


def with_uncounted(told: Usage, chars: int) -> Usage:
    """What an upstream had reported when its answer was broken off, with what it wrote after that: Anthropic counts one
    token at the beginning, and the others at the end."""
    if not chars:
        return told
    return replace(told, completion_tokens=(told.completion_tokens or 0) - (-chars // _ASCII_CHARS), estimated=True)


def _input_tokens(request: object) -> int:
    """Of what is no generation."""
    match request:
        case EmbeddingRequest():
            return _prompts_tokens(request.inputs)
        case RerankRequest():
            return text_tokens(request.query) + sum(map(text_tokens, request.documents))
        case ScoreRequest():
            return sum(map(text_tokens, (*request.queries, *request.documents)))
        case _:
            return 0


def _prompts_tokens(prompts: tuple[Prompt | Opaque, ...]) -> int:
    return sum(map(_tokens_of, prompts))


def _tokens_of(prompt: Prompt | Opaque) -> int:
    if isinstance(prompt, Opaque):
        return _part_tokens(prompt)
    return text_tokens(prompt) if isinstance(prompt, str) else len(prompt)


def _part_tokens(part: Part) -> int:
    match part:
        case Text() | Reasoning() | Refusal():
            return text_tokens(part.text)
        case ToolCall():
            return text_tokens(part.arguments) + _MESSAGE_TOKENS
        case ToolResult():
            return sum(map(_part_tokens, part.parts)) + _MESSAGE_TOKENS
        case Document(text=str(text)):
            return text_tokens(text)
        case Opaque():
            return 0 if part.is_told else len(part.raw) // _ASCII_CHARS
        case Image() | Audio() | Video() | File() | Document():
            return _MEDIA_TOKENS
        case _:
            assert_never(part)
