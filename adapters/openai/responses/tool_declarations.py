"""Tools of a request that a gateway may run itself, read from their declarations: MCP servers and hosted tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta, Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.field_types import BOOL, TEXT, TEXTS
from adapters.json_fields import JsonObject, decode_at, parse_object_at
from adapters.openai.responses.tool_items import CODE_INTERPRETER, FILE_SEARCH, WEB_SEARCH
from adapters.raw_json import OBJECT

__all__ = ["Approval", "McpDeclaration", "ToolFilter", "hosted_fields", "hosted_kind", "read_mcp_tool"]

_LABEL = Decoder(Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")])
_HEADERS = Decoder(dict[str, str])
_NAMES_OR_FILTER = Decoder(list[str] | dict[str, Raw])
_WORD_OR_FILTERS = Decoder(str | dict[str, Raw])
_HOSTED = {
    "web_search": WEB_SEARCH,
    "web_search_2025_08_26": WEB_SEARCH,
    "web_search_preview": WEB_SEARCH,
    "web_search_preview_2025_03_11": WEB_SEARCH,
    "file_search": FILE_SEARCH,
    "code_interpreter": CODE_INTERPRETER,
}
_ASKS_NOTHING = (b"null", b"false", b"[]", b"{}")


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Some of a server's tools. None: whatever."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def takes(self, name: str, read_only: bool) -> bool:
        if self.names is not None and name not in self.names:
            return False
        return self.read_only is None or self.read_only == read_only


@dataclass(frozen=True, slots=True)
class Approval:
    """Which calls need approval: those that `always` takes, not those that `never` takes. `otherwise` of the others."""

    otherwise: bool
    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needs(self, name: str, read_only: bool) -> bool:
        if self.always is not None and self.always.takes(name, read_only):
            return True
        if self.never is not None and self.never.takes(name, read_only):
            return False
        return self.otherwise


@dataclass(frozen=True, slots=True, repr=False)
class McpDeclaration:
    """An MCP server as a request has it. `url` None: one that is known by its label. `elsewhere` names the field that
    only another service can follow (`connector_id`). `approval` None: the request does not say."""

    path: str
    label: str
    url: str | None
    elsewhere: str | None
    headers: Mapping[str, str] = field(default_factory=dict)
    allowed: ToolFilter = ToolFilter()
    approval: Approval | None = None
    description: str | None = None
    rest: tuple[str, ...] = ()
    """Fields that nobody here can follow."""

    def refuse_rest(self) -> None:
        """Raises UnsupportedParameter for what a gateway that runs it itself can't do."""
        for name in self.rest:
            raise UnsupportedParameter.at(f"{self.path}.{name}", "not with MCP servers that the gateway calls")


def hosted_kind(name: str) -> str | None:
    """Which hosted tool a type stands for; None: none that a server of tools can take the place of."""
    return _HOSTED.get(name)


def hosted_fields(raw: bytes, path: str) -> Mapping[str, bytes]:
    """What the declaration of a hosted tool says besides its type, raw JSON by name."""
    fields = {name: bytes(value) for name, value in decode_at(raw, OBJECT, path).items() if name != "type"}
    container = fields.get("container", b"").replace(b" ", b"")
    if container == b'{"type":"auto"}':  # whoever runs code brings its own
        del fields["container"]
    return {name: value for name, value in fields.items() if value not in _ASKS_NOTHING}


def read_mcp_tool(raw: bytes, path: str) -> McpDeclaration:
    """Raises InvalidRequest, naming the path."""
    tool = parse_object_at(raw, path)
    tool.take_raw("type")
    url = tool.take("server_url", TEXT)
    headers = tool.take("headers", _HEADERS) or {}
    token = tool.take("authorization", TEXT)
    if token is not None:
        headers = {**headers, "authorization": f"Bearer {token}"}
    elsewhere = next((name for name in ("connector_id", "tunnel_id") if tool.take(name, TEXT) is not None), None)
    label: str = tool.require("server_label", _LABEL)
    allowed = tool.take("allowed_tools", _NAMES_OR_FILTER)
    approval = _approval(tool)
    description = tool.take("server_description", TEXT)
    return McpDeclaration(
        path=path,
        label=label,
        url=url,
        elsewhere=elsewhere,
        headers=headers,
        allowed=_filter(allowed, tool.at("allowed_tools")),
        approval=approval,
        description=description,
        rest=tuple([name for name, value in tool.rest().items() if value not in _ASKS_NOTHING]),
    )


def _filter(found: list[str] | dict[str, Raw] | None, path: str) -> ToolFilter:
    if found is None:
        return ToolFilter()
    if isinstance(found, list):
        return ToolFilter(frozenset(found))
    fields = JsonObject(found, path)
    names = fields.take("tool_names", TEXTS)
    read_only = fields.take("read_only", BOOL)
    fields.refuse_rest()
    return ToolFilter(None if names is None else frozenset(names), read_only)


def _approval(tool: JsonObject) -> Approval | None:
    found = tool.take("require_approval", _WORD_OR_FILTERS)
    path = tool.at("require_approval")
    if found is None:
        return None
    if isinstance(found, str):
        if found not in ("always", "never"):
            raise InvalidRequest.at(path, "expected always, never, or an object")
        return Approval(found == "always")
    fields = JsonObject(found, path)
    filters = {name: fields.take(name, OBJECT) for name in ("always", "never")}
    fields.refuse_rest()
    always, never = (
        None if filters[name] is None else _filter(filters[name], f"{path}.{name}") for name in ("always", "never")
    )
    return Approval(always is None or never is not None, always, never)
