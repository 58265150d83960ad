"""Events: what a provider's stream is made of, in the order that a client may see.

Each event names its choice and its part (parts count from 0 within a choice, dense, in order of first appearance);
nobody counts chunks. A stream of one request is

    Started  (deltas, tool calls, reports, ...)*  ChoiceFinished for each choice  UsageReported?

and fails by raising a GatewayError instead. A delta with token logprobs carries exactly those of its own tokens.
"""

from collections.abc import Mapping
from typing import final

from msgspec import Struct

from adapters.canonical.citation import Citation
from adapters.canonical.messages import ProviderData
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.tool_kinds import FUNCTION
from adapters.canonical.usage import TokenLogprob, Usage

__all__ = [
    "AnnotationAdded",
    "ChoiceFinished",
    "Event",
    "HostedToolEvent",
    "MediaDelta",
    "PartEvent",
    "PartReported",
    "PromptReported",
    "ProviderReported",
    "ReasoningDelta",
    "ReasoningFinished",
    "RefusalDelta",
    "Started",
    "TextDelta",
    "ToolArgumentsDelta",
    "ToolCallFinished",
    "ToolCallStarted",
    "UsageReported",
    "is_output",
]


@final
class Started(Struct, frozen=True, gc=False):
    """The provider accepted. All are the upstream's own and may be unknown: `created` is Unix seconds, `request_id` the
    id that its HTTP answer carried, `limits` what its head said of rate limits (names in lower case, without `x-`)."""

    id: str | None = None
    created: int | None = None
    model: str | None = None
    request_id: str | None = None
    limits: tuple[tuple[str, str], ...] = ()


@final
class TextDelta(Struct, frozen=True, gc=False):
    """`text` may be empty when only token data (logprobs, ids) arrived."""

    choice: int
    part: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


class ReasoningDelta(Struct, frozen=True, gc=False):
    """`summary`: the text belongs to the summary (to its piece `piece`, from 0), not to the raw reasoning."""

    choice: int
    part: int
    text: str
    summary: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()
    piece: int = 0


class ReasoningFinished(Struct, frozen=True, gc=False):
    """Opaque proof of the part's reasoning; `origin` names the provider that made it. Several may come for one part."""

    choice: int
    part: int
    signature: str | None = None
    encrypted: str | None = None
    origin: str | None = None
    provider_data: ProviderData | None = None


class RefusalDelta(Struct, frozen=True, gc=False):
    choice: int
    part: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class PartReported(Struct, frozen=True, gc=False):
    """Opaque fields of a text or refusal, in the dialect `provider_data.origin`; comes before its first delta."""

    choice: int
    part: int
    provider_data: ProviderData


class AnnotationAdded(Struct, frozen=True, gc=False):
    """A citation on a text part: as raw JSON of the dialect `origin`, for clients of that dialect, and as what it means
    to all others. Without raw JSON the dialect says it in fields of its own (ProviderReported)."""

    choice: int
    part: int
    annotation: bytes
    origin: str
    citations: tuple[Citation, ...] = ()


class MediaDelta(Struct, frozen=True, gc=False):
    """A piece of audio or of an image. `data` is base64; pieces join. `media` is audio, image or video."""

    choice: int
    part: int
    media: str
    data: str = ""
    transcript: str = ""
    format: str | None = None
    id: str | None = None
    expires_at: int | None = None


class ToolCallStarted(Struct, frozen=True, gc=False):
    """`id` is unique and `name` not empty; both are final. `kind` is function, custom, hosted or mcp."""

    choice: int
    part: int
    id: str
    name: str
    kind: str = FUNCTION
    provider_data: ProviderData | None = None


class ToolArgumentsDelta(Struct, frozen=True, gc=False):
    choice: int
    part: int
    text: str


class ToolCallFinished(Struct, frozen=True, gc=False):
    choice: int
    part: int


class HostedToolEvent(Struct, frozen=True, gc=False):
    """Progress of a tool that the provider runs itself, as raw JSON of the dialect `origin`."""

    choice: int
    part: int
    type: str
    raw: bytes
    origin: str


class PromptReported(Struct, frozen=True, gc=False):
    """Facts about prompt number `prompt`, where they were asked for. `logits` are raw JSON."""

    prompt: int
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    logits: bytes | None = None


@final
class ChoiceFinished(Struct, frozen=True, gc=False):
    """`raw` is the upstream's own word. `stop` is the stop string or stop token id that ended it, None on plain EOS."""

    choice: int
    reason: StopReason
    raw: str | None = None
    stop: str | int | None = None

    @property
    def word(self) -> str:
        """The upstream's own word, or else ours."""
        return self.raw or self.reason.value


@final
class UsageReported(Struct, frozen=True, gc=False):
    """Running totals; a later report replaces an earlier one whole."""

    usage: Usage


@final
class ProviderReported(Struct, frozen=True, gc=False):
    """Fields of the dialect `origin` that are not mapped, as raw JSON by name. `choice` None: of the whole answer."""

    fields: Mapping[str, bytes]
    origin: str
    choice: int | None = None


PartEvent = (
    TextDelta
    | ReasoningDelta
    | ReasoningFinished
    | RefusalDelta
    | PartReported
    | AnnotationAdded
    | MediaDelta
    | ToolCallStarted
    | ToolArgumentsDelta
    | ToolCallFinished
    | HostedToolEvent
)
"""What stands in a part of a choice."""
Event = PartEvent | Started | PromptReported | ChoiceFinished | UsageReported | ProviderReported
"""Closed: match all, down to assert_never or to what takes the rest."""

_SILENT = (Started, ProviderReported, UsageReported, PromptReported, PartReported)


def is_output(event: Event) -> bool:
    """Whether the event commits the answer to its target: after it there is no retry and no failover (law 13)."""
    if type(event) is TextDelta or type(event) is ReasoningDelta:
        return bool(event.text or event.logprobs or event.token_ids)
    if type(event) is RefusalDelta:
        return bool(event.text or event.logprobs)
    return not isinstance(event, _SILENT)
