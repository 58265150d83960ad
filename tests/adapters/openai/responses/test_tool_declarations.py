"""Tools of requests that the gateway may run: what their declarations say."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.openai.responses.tool_declarations import hosted_fields, hosted_kind, read_mcp_tool


def mcp(**fields: Any) -> Any:
    return read_mcp_tool(json.dumps({"type": "mcp", "server_label": "s", **fields}).encode(), "tools[2]")


def test_a_declaration_is_read_whole() -> None:
    found = mcp(
        server_url="https://h/", headers={"x-a": "1"}, authorization="t", server_description="d", defer_loading=False
    )
    assert (found.label, found.url, found.description, found.rest) == ("s", "https://h/", "d", ())
    assert found.headers == {"x-a": "1", "authorization": "Bearer t"}
    assert found.approval is None
    assert found.allowed.takes("anything", read_only=False)
    assert mcp(connector_id="connector_gmail").elsewhere == "connector_id"
    assert mcp(later={"x": 1}).rest == ("later",)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_label": None}, "tools[2].server_label"),
        ({"server_label": "a b"}, "tools[2].server_label"),
        ({"headers": {"a": 1}}, "tools[2].headers"),
        ({"allowed_tools": {"names": ["x"]}}, "tools[2].allowed_tools.names"),
        ({"require_approval": "perhaps"}, "tools[2].require_approval"),
        ({"require_approval": {"never": {"tool_names": "x"}}}, "tools[2].require_approval.never.tool_names"),
        ({"require_approval": {"sometimes": {}}}, "tools[2].require_approval.sometimes"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        mcp(**fields)
    assert caught.value.param == param


def test_tools_are_chosen_by_name_and_by_what_they_change() -> None:
    both = mcp(allowed_tools={"tool_names": ["a"], "read_only": True}).allowed
    assert [both.takes("a", True), both.takes("a", False), both.takes("b", True)] == [True, False, False]
    approval = mcp(require_approval={"always": {"tool_names": ["a"]}, "never": {"read_only": True}}).approval
    assert approval is not None
    assert [approval.needs("a", True), approval.needs("b", True), approval.needs("b", False)] == [True, False, True]


def test_hosted_tools_have_several_names_and_only_what_asks_for_something_counts() -> None:
    assert {hosted_kind(name) for name in ("web_search", "web_search_preview_2025_03_11")} == {"web_search"}
    assert hosted_kind("image_generation") is None
    declared = {"type": "code_interpreter", "container": {"type": "auto"}, "filters": None, "x": 1}
    assert hosted_fields(json.dumps(declared).encode(), "tools[0]") == {"x": b"1"}
