"""Messages: what was said, as ordered parts. Owns no wire words.

Every dialect's parser builds these and its renderer reads them.

Raw JSON (`bytes`) stands wherever this project must not decode and rebuild what it was given: annotations, provider
data, schemas, unknown fields.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from adapters.canonical.citation import Citation
from adapters.canonical.tool_kinds import FUNCTION

__all__ = [
    "ASSISTANT",
    "DEVELOPER",
    "SYSTEM",
    "TOOL",
    "USER",
    "Audio",
    "CacheHint",
    "Document",
    "File",
    "Image",
    "MediaSource",
    "Message",
    "Opaque",
    "Part",
    "ProviderData",
    "Reasoning",
    "Refusal",
    "Text",
    "ToolCall",
    "ToolResult",
    "Video",
    "as_plain_parts",
    "joined_data",
    "plain_parts",
    "text_of",
    "told_parts",
]

SYSTEM = "system"
DEVELOPER = "developer"
USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"


class ProviderData(Struct, frozen=True):
    """Opaque fields of one dialect (raw JSON by name). They travel byte-identical and go back only to `origin`."""

    origin: str
    fields: Mapping[str, bytes]


class CacheHint(Struct, frozen=True):
    """Up to here the prompt is worth caching. `ttl` says how long (`5m`, `1h`); None: the dialect's default."""

    ttl: str | None = None
    provider_data: ProviderData | None = None


class MediaSource(Struct, frozen=True):
    """Where media lie: exactly one of `url` (http or data URI, passed on as it came), `data` (base64) and `file_id`."""

    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    media_type: str | None = None


class Text(Struct, frozen=True, kw_only=True):
    """`annotations` are raw JSON objects (citations) of the dialect `annotated_by`, `citations` what they mean in an
    answer."""

    text: str
    annotations: tuple[bytes, ...] = ()
    annotated_by: str | None = None
    citations: tuple[Citation, ...] = ()
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Image(Struct, frozen=True, kw_only=True):
    source: MediaSource
    detail: str | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Audio(Struct, frozen=True, kw_only=True):
    """`format` is a file format (`wav`). An assistant's own audio has an id, an expiry (Unix s) and a transcript."""

    source: MediaSource
    format: str | None = None
    id: str | None = None
    expires_at: int | None = None
    transcript: str | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Video(Struct, frozen=True, kw_only=True):
    source: MediaSource
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class File(Struct, frozen=True, kw_only=True):
    source: MediaSource
    filename: str | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Document(Struct, frozen=True, kw_only=True):
    """A document that the model may cite. Plain text stands in `text`, anything else in `source`."""

    source: MediaSource | None = None
    text: str | None = None
    title: str | None = None
    context: str | None = None
    citations: bool | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Reasoning(Struct, frozen=True, kw_only=True):
    """What the model thought. `signature` and `encrypted` are opaque and belong to `origin` (a provider's name)."""

    text: str = ""
    summary: tuple[str, ...] = ()
    signature: str | None = None
    encrypted: str | None = None
    origin: str | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Refusal(Struct, frozen=True, kw_only=True):
    text: str
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class ToolCall(Struct, frozen=True, kw_only=True):
    """Kinds: function, custom, hosted, mcp. `arguments` is the model's own text: JSON for a function."""

    id: str
    name: str
    arguments: str = ""
    kind: str = FUNCTION
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """The answer to the call `call_id`. `is_error` None: the dialect does not say."""

    call_id: str
    parts: "tuple[Part, ...]" = ()
    is_error: bool | None = None
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None


class Opaque(Struct, frozen=True, kw_only=True):
    """A part that only its own dialect understands: `raw` is the whole JSON object, `origin` the dialect."""

    type: str
    raw: bytes
    origin: str
    cache: CacheHint | None = None
    provider_data: ProviderData | None = None
    is_told: bool = False
    """What it says stands elsewhere in the request too: where it cannot go, nothing is lost."""


Part = (
    Text | Image | Audio | Video | File | Document | Reasoning | Refusal | ToolCall | ToolResult | Opaque
)  # closed: match with assert_never


class Message(Struct, frozen=True, kw_only=True):
    """One turn. `role` is one of the constants above, or another word that a template may know.

    `phase` is commentary or final_answer (Responses). `extras` holds unmapped fields of the client's dialect.
    """

    role: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    phase: str | None = None
    extras: ProviderData | None = None


def text_of(parts: tuple[Part, ...]) -> str:
    """The text of all Text parts, joined without a separator."""
    return "".join([part.text for part in parts if isinstance(part, Text)])


def told_parts(result: ToolResult) -> tuple[Part, ...]:
    """A result for an API without a word for failure: one that is an error says so at its beginning."""
    if not result.is_error:
        return result.parts
    first, *rest = result.parts or (Text(text=""),)
    if isinstance(first, Text):
        return (replace(first, text=f"Error: {first.text}"), *rest)
    return (Text(text="Error:"), first, *rest)


def plain_parts(document: Document) -> "tuple[Text | File, ...] | None":
    """A document for what knows texts and files alone: its title, context and text, or its context and the file.

    None where it is to be cited, which those can't do.
    """
    if document.citations:
        return None
    if document.source is None:
        told = [text for text in (document.title, document.context, document.text) if text]
        return (Text(text="\n".join(told), cache=document.cache),)
    context = (Text(text=document.context),) if document.context else ()
    return (*context, File(source=document.source, filename=document.title, cache=document.cache))


def as_plain_parts(part: Part) -> Sequence[Part]:
    """A document as what stands for it; one that is to be cited, and anything else, as it is."""
    return (plain_parts(part) if isinstance(part, Document) else None) or (part,)


def joined_data(data: ProviderData | None, more: ProviderData | None) -> ProviderData | None:
    """Opaque fields of one origin that came in several pieces: lists join, of anything else the last counts."""
    if data is None or more is None:
        return more or data
    fields = dict(data.fields)
    for name, raw in more.fields.items():
        fields[name] = _join_lists(fields[name], raw) if name in fields else raw
    return ProviderData(more.origin, fields)


def _join_lists(first: bytes, second: bytes) -> bytes:
    if not (first.startswith(b"[") and second.startswith(b"[")):
        return second
    elements = [inner for inner in (first[1:-1], second[1:-1]) if inner.strip()]
    return b"[%b]" % b",".join(elements)
