"""A client's choice of tools, in the names by which the model has those that the gateway runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import AUTO, REQUIRED, ToolChoice
from adapters.canonical.tool_kinds import MCP
from adapters.openai.responses.tool_declarations import hosted_kind
from adapters.openai.responses.tool_items import MCP_CALL
from gateway.tools.bound_tools import BoundTool

__all__ = ["bound_choice", "later_choice"]


def bound_choice(
    choice: ToolChoice | None, bound: Mapping[str, BoundTool]
) -> tuple[ToolChoice | None, frozenset[str] | None]:
    """The choice with the names that the model has, and the names that it allows (None: all)."""
    if choice is None:
        return None, None
    if choice.allowed is not None:
        references = [reference for raw in choice.allowed for reference in _references(raw, bound)]
        allowed = [str(orjson.loads(reference).get("name", "")) for reference in references]
        return replace(choice, allowed=tuple(references)), frozenset(allowed)
    if choice.raw is None or not bound:
        return choice, None
    names = _meant(orjson.loads(choice.raw), bound)
    if names is None:
        return choice, None
    if not names:
        raise InvalidRequest.at("tool_choice", f"no {choice.name} tool is there")
    if len(names) == 1:
        return ToolChoice(mode=REQUIRED, name=names[0]), frozenset(names)
    return ToolChoice(mode=REQUIRED, allowed=tuple(map(_reference, names))), frozenset(names)


def later_choice(choice: ToolChoice | None) -> ToolChoice | None:
    """The choice once a tool was called: what had to be called has been."""
    if choice is None or choice.mode != REQUIRED:
        return choice
    return None if choice.allowed is None else ToolChoice(mode=AUTO, allowed=choice.allowed)


def _references(raw: bytes, bound: Mapping[str, BoundTool]) -> Sequence[bytes]:
    names = _meant(orjson.loads(raw), bound)
    return (raw,) if names is None else [_reference(name) for name in names]


def _reference(name: str) -> bytes:
    return orjson.dumps({"type": "function", "name": name})


def _meant(reference: Mapping[str, Any], bound: Mapping[str, BoundTool]) -> Sequence[str] | None:
    """The names that a reference to tools stands for; None: it is not about tools of the gateway."""
    kind = reference.get("type")
    if kind == MCP:
        label, name = reference.get("server_label"), reference.get("name")
        if not any(tool.label == label and tool.kind == MCP_CALL for tool in bound.values()):
            return None
        return [each for each, tool in bound.items() if tool.label == label and name in (None, tool.tool.name)]
    hosted = hosted_kind(str(kind))
    names = [each for each, tool in bound.items() if hosted is not None and tool.kind == hosted]
    return names or None
