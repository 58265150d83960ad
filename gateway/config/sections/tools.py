"""`tools:`, `fetch:`, `guardrails:`: what the gateway does besides passing requests on."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from gateway.config.sections.section import FrozenMap, HttpUrl, Positive, Secret, Section, Text, empty_map

__all__ = ["Fetch", "Functions", "Guardrail", "McpServer", "ToolServer", "Tools"]

_USE = re.compile(r"(mcp|functions):[A-Za-z0-9][A-Za-z0-9._-]*(/.+)?")


def _tool_use(value: str) -> str:
    if _USE.fullmatch(value) is None:
        raise ValueError("expected mcp:NAME, mcp:NAME/TOOL, or the same with functions:")
    return value


ToolUse = Annotated[str, AfterValidator(_tool_use)]
"""Whose tools do something: `mcp:NAME`, or one of them: `mcp:NAME/TOOL`."""
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class ToolServer(Section):
    """What every source of tools has."""

    approval: Literal["always", "never"] = Field(
        default="always", description="Does a call need approval, where the request says nothing?"
    )
    allowed_tools: tuple[Text, ...] | None = Field(default=None, description="Names of its tools; default: all.")
    timeout_s: Seconds = Field(default=30.0, description="Longest wait for a call, or for the list of tools.")


class McpServer(ToolServer):
    url: HttpUrl | None = Field(default=None, description="Address of the server.")
    command: tuple[Text, ...] | None = Field(default=None, min_length=1, description="Or the command that starts it.")
    headers: FrozenMap[Secret] = Field(default_factory=empty_map, description="Headers of every call.")
    env: FrozenMap[SecretStr] = Field(default_factory=empty_map, description="Variables of the command's environment.")
    transport: Literal["http", "sse"] = Field(default="http", description="Of an address: streamable HTTP, or SSE.")

    @model_validator(mode="after")
    def _one_way(self) -> "McpServer":
        if (self.url is None) == (self.command is None):
            raise ValueError("expected either 'url' or 'command'")
        if self.url is None and self.headers:
            raise ValueError("'headers' need a 'url'")
        if self.command is None and self.env:
            raise ValueError("'env' needs a 'command'")
        return self


class Functions(ToolServer):
    use: Text = Field(description="The entry point of an installed package, by its name.")
    options: FrozenMap[object] = Field(default_factory=empty_map, description="Options of that one.")


class Tools(Section):
    mcp: FrozenMap[McpServer] = Field(default_factory=empty_map, description="MCP servers by name.")
    functions: FrozenMap[Functions] = Field(default_factory=empty_map, description="Python functions by name.")
    web_search: ToolUse | None = Field(default=None, description="What searches the web: mcp:NAME or mcp:NAME/TOOL.")
    file_search: ToolUse | None = Field(default=None, description="The same for files.")
    code_interpreter: ToolUse | None = Field(default=None, description="The same for what runs code.")
    from_request: bool = Field(default=False, description="May a request name MCP servers of its own?")


class Fetch(Section):
    schemes: tuple[Literal["https", "http", "data"], ...] = Field(
        default=("https", "data"), description="Schemes of addresses in requests that are fetched."
    )
    private_addresses: bool = Field(default=False, description="May they lead to private networks?")
    allow_hosts: tuple[Text, ...] = Field(default=(), description="Hosts that are allowed whatever they resolve to.")
    max_mb: Positive = Field(default=20, description="Largest file, in MiB.")


class Guardrail(Section):
    regex: Text | None = Field(default=None, description="Text that is looked for.")
    replace: str | None = Field(default=None, description="What stands in its place; default: the request is refused.")
    max_length: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=64, description="Longest match in characters; a stream is held back by so many."
    )
    webhook: HttpUrl | None = Field(default=None, description="Or an address that judges the text.")
    headers: FrozenMap[Secret] = Field(
        default_factory=empty_map, description="Headers of every call of the webhook, such as its key."
    )
    use: Text | None = Field(default=None, description="Or a guardrail that an installed package brings, by its name.")
    options: FrozenMap[object] = Field(default_factory=empty_map, description="Options of that one.")
    on: tuple[Literal["input", "output"], ...] = Field(default=("input", "output"), min_length=1)

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> "Guardrail":
        if sum(kind is not None for kind in (self.regex, self.webhook, self.use)) != 1:
            raise ValueError("expected one of 'regex', 'webhook' and 'use'")
        if self.headers and self.webhook is None:
            raise ValueError("'headers' need a 'webhook'")
        return self
