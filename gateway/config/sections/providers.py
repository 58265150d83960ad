"""`providers:` without the local one: where models are called, with which credentials.

The list of provider types is open: it comes with the validation context (`provider_types`), never from here.
"""

import os
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, SecretStr, Tag, ValidationInfo, field_validator

from gateway.config.foreign_words import meant_type
from gateway.config.sections.local import LocalProvider, ReasoningFormat, ToolFormat
from gateway.config.sections.reliability import OwnTimeouts
from gateway.config.sections.section import (
    FrozenMap,
    HttpUrl,
    LocalPath,
    Positive,
    Secret,
    Section,
    Text,
    Unsupported,
    empty_map,
)

__all__ = [
    "AnthropicProvider",
    "AzureProvider",
    "BedrockProvider",
    "GeminiProvider",
    "Provider",
    "Providers",
    "RemoteProvider",
]


def _known_types(info: ValidationInfo) -> Collection[str]:
    context = info.context or {}
    known: Collection[str] = context.get("provider_types", ())
    return known


def _stamp(path: str | None) -> tuple[int, ...] | None:
    """What changes when another file takes its place; None: there is none."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class RemoteProvider(Section):
    """A model API that is called over HTTP."""

    type: Text = Field(description="Kind of provider; follows from the name if that is a kind.")
    enabled: bool | Literal["auto"] = Field(default=True, description="auto: on when its credentials resolve.")
    base_url: HttpUrl | None = Field(default=None, description="Address of the API, up to its version.")
    api_key: Secret | None = Field(default=None, description='The key; give it as "${NAME}" or "${file:/path}".')
    headers: FrozenMap[Secret] = Field(default_factory=empty_map, description="Headers of every call.")
    proxy: SecretStr | None = Field(default=None, description="Proxy for every call.")
    ca_file: LocalPath | None = Field(default=None, description="PEM file of certificate authorities to trust.")
    client_cert: LocalPath | None = Field(default=None, description="PEM file of a certificate to show the server.")
    client_key: LocalPath | None = Field(default=None, description="PEM file of its key; default: in client_cert.")
    _files: tuple[object, ...] = PrivateAttr()
    """How its files were when it was read: with other ones in their place the provider is another one."""
    max_connections: Positive = Field(default=512, description="Connections at the same time.")
    timeouts: OwnTimeouts = Field(
        default_factory=OwnTimeouts, description="Its own limits in seconds; default: those of reliability."
    )
    params: FrozenMap[object] = Field(default_factory=empty_map, description="Fields added to every request.")
    unsupported_params: Unsupported | None = Field(
        default=None, description="What happens to a parameter that the target does not know; default: server's."
    )
    reasoning_format: ReasoningFormat | None = Field(
        default=None, description="How the model marks its reasoning in text."
    )
    tool_format: ToolFormat | None = Field(default=None, description="How the model marks tool calls in text.")

    def model_post_init(self, context: object, /) -> None:
        self._files = tuple(map(_stamp, (self.ca_file, self.client_cert, self.client_key)))

    @property
    def key_is_empty(self) -> bool:
        """A key is given, but nothing stands in it."""
        return self.api_key is not None and not self.api_key.get_secret_value()

    @field_validator("type")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        known = _known_types(info)
        if value in known:
            return value
        raise ValueError(f"unknown provider type '{value}'{meant_type(value, sorted(known))}")

    @field_validator("client_key")
    @classmethod
    def _key_of_something(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("client_cert") is None:
            raise ValueError("expected 'client_cert' beside it")
        return value

    @field_validator("proxy")
    @classmethod
    def _proxy_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("expected an http:// or https:// address")
        return value


class AnthropicProvider(RemoteProvider):
    api_version: Text = Field(default="auto", description="API version; auto chooses it by request.")


class GeminiProvider(RemoteProvider):
    project: Text | None = Field(default=None, description="Project of Google Cloud: Vertex AI in place of AI Studio.")
    region: Text | None = Field(default=None, description="Region of Vertex AI; default: global.")


class AzureProvider(RemoteProvider):
    api_version: Text | None = Field(default=None, description="Version of the classic API; default: the v1 API.")
    deployments: FrozenMap[Text] = Field(
        default_factory=empty_map, description="Names of deployments by those of models, where they differ."
    )


class BedrockProvider(RemoteProvider):
    region: Text | None = Field(default=None, description="AWS region.")


_SPECIAL = {
    "local": "LocalProvider",
    "anthropic": "AnthropicProvider",
    "azure": "AzureProvider",
    "bedrock": "BedrockProvider",
    "gemini": "GeminiProvider",
}


def _tag(value: object) -> str:
    type_ = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return _SPECIAL.get(type_, "RemoteProvider") if isinstance(type_, str) else "RemoteProvider"


Provider = Annotated[
    Annotated[LocalProvider, Tag("LocalProvider")]
    | Annotated[RemoteProvider, Tag("RemoteProvider")]
    | Annotated[AnthropicProvider, Tag("AnthropicProvider")]
    | Annotated[AzureProvider, Tag("AzureProvider")]
    | Annotated[BedrockProvider, Tag("BedrockProvider")]
    | Annotated[GeminiProvider, Tag("GeminiProvider")],
    Discriminator(_tag),
]


def _types_from_names(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, Mapping):
        return value
    kinds = _known_types(info)
    return {
        name: {"type": name, **entry} if isinstance(entry, Mapping) and name in kinds else entry
        for name, entry in value.items()
    }


Providers = Annotated[
    FrozenMap[Provider], BeforeValidator(_types_from_names, json_schema_input_type=dict[str, Provider])
]
