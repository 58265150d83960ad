"""What makes requests belong together, so that one target's prefix cache serves them: a session, or how they begin."""

from itertools import islice

from adapters.canonical.messages import USER, Text, ToolResult
from adapters.canonical.request import Request
from gateway.routing.progress import Progress

__all__ = ["SESSION_HEADER", "affinity_of", "session_of"]

SESSION_HEADER = "x-gateway-session"
_CHARS = 4096
_TOKENS = 512


def session_of(progress: Progress, request: Request | None) -> str | None:
    """The session that the client names, in the body or in a header."""
    named = request.session_id if request is not None else None
    return named or progress.headers.get(SESSION_HEADER)


def affinity_of(progress: Progress, request: Request | None) -> str | None:
    """The session, the client's cache key, or the prompt up to the end of the first user message. None: there is no
    prompt of messages, and no session."""
    if progress.session_id is not None:
        return f"session {progress.session_id}"
    if request is None:
        return None
    if request.prompt_cache_key is not None:
        return f"key {request.prompt_cache_key}"
    return f"prompt {_beginning(request)}"


def _beginning(request: Request) -> str:
    if request.prompts is not None:
        prompt = request.prompts[0]
        return prompt[:_CHARS] if isinstance(prompt, str) else ",".join(map(str, islice(prompt, _TOKENS)))
    pieces: list[str] = []
    for message in request.messages or ():
        pieces.append(message.role)
        for part in message.parts:
            # Of what is no text the kind has to do: a picture's bytes are long, and its address may change.
            pieces.append(part.text if isinstance(part, Text) else type(part).__name__)
        if message.role == USER and not any(isinstance(part, ToolResult) for part in message.parts):
            break
    return "\n".join(pieces)[:_CHARS]
