"""The provider for AWS Bedrock's Converse API over HTTP.

Joins the dialect, HTTP and AWS's signatures. Owns addresses, credentials and what which model takes; no wire words, no
retries.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from adapters.bedrock.upstream import ConverseUpstream
from adapters.canonical.errors import UpstreamError
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Request
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings, Readiness, ReadinessState
from providers.choices import fan_out
from providers.client_key import KeyHeader
from providers.models.narrowing import per_model
from providers.models.schema_subsets import ANTHROPIC
from providers.remote.aws import AwsSignature, EventStreamFrames, require_botocore
from providers.remote.exchange import exchange
from providers.remote.forced_output import forced_output, needs_tool
from providers.remote.http import HttpClient

__all__ = ["BedrockProvider"]

_REQUEST_ID = "x-amzn-requestid"
_READY = Readiness(ReadinessState.READY)
_NO_DEFAULTS = frozenset(("model", "messages", "system"))
_STREAM = {"accept": "application/vnd.amazon.eventstream"}
_FIELDS = frozenset(
    (
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "stop",
        "n",
        "tools",
        "tool_choice",
        "output_format",
        "reasoning.effort",
        "service_tier",
        "metadata",
        "prompt_cache_key",  # a hint, which changes nothing about the answer
    )
)
_PARTS: frozenset[type[Part]] = frozenset(
    (Text, Refusal, Reasoning, ToolCall, ToolResult, Image, Audio, Video, File, Document)
)
_MORE_FIELDS: Mapping[str, frozenset[str]] = {
    # What goes to the models of a family past Converse, by a word of their names.
    "claude": frozenset(("top_k", "reasoning.budget_tokens")),
    "mistral": frozenset(("top_k",)),
}


def _capabilities(more: frozenset[str]) -> Callable[[str], Capabilities]:
    return per_model(Capabilities(fields=_FIELDS | more, parts=_PARTS, schema_lacks=ANTHROPIC))


_OF_FAMILY = {word: _capabilities(more) for word, more in _MORE_FIELDS.items()}
_OF_OTHERS = _capabilities(frozenset())


class BedrockProvider:
    """One account in one region; satisfies `providers.base.Provider`. A key is a Bedrock API key, sent as a bearer."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work, ImportError without botocore."""
        for name in settings.params:
            if name in _NO_DEFAULTS:
                raise ValueError(f"providers.{settings.name}.params.{name}: this field can't have a default")
        require_botocore(settings.name)
        region = settings.options.get("region")
        if region is None:
            raise ValueError(f"providers.{settings.name}.region: required for the type bedrock")
        base_url = settings.base_url or f"https://bedrock-runtime.{region}.amazonaws.com"
        auth = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._name = settings.name
        key_header = KeyHeader("authorization", "Bearer ") if auth else None
        self._client = HttpClient(settings, base_url, auth, key_header=key_header)
        self._sign = None if auth else AwsSignature(settings.name, base_url, region=str(region)).headers
        self._upstream = ConverseUpstream(
            settings.name,
            EventStreamFrames,
            defaults={name: msgspec.json.encode(value) for name, value in settings.params.items()},
        )

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        """Nothing runs in the background; the first call opens the first connection."""

    def capabilities(self, model: str) -> Capabilities:
        family = next((word for word in _OF_FAMILY if word in model), "")
        return _OF_FAMILY.get(family, _OF_OTHERS)(model)

    def readiness(self, model: str) -> Readiness:
        return _READY

    async def models(self) -> Sequence[ModelEntry]:
        """Raises UpstreamError: the API that answers has no list, and what an account may call is told elsewhere."""
        raise UpstreamError(f"{self._name}: Bedrock has no list of what an account may call")

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._answer, request)

    def _answer(self, request: Request) -> AsyncGenerator[Batch, None]:
        return forced_output(self._call, request) if needs_tool(request) else self._call(request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        headers: Mapping[str, str] | None = _STREAM if request.stream else None
        path = self._upstream.path_of(request)
        return exchange(self._client, self._upstream, request, _REQUEST_ID, path=path, headers=headers, sign=self._sign)

    async def aclose(self) -> None:
        await self._client.aclose()
