"""Functions of installed packages."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.sections.tools import Functions
from gateway.tools.functions import ENTRY_POINT_GROUP, FunctionServer, FunctionTool, build_functions
from gateway.tools.server import ToolServerError
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import configure, running
from tests.gateway.tools.asking import calls, kinds, made, says, streamed

pytestmark = pytest.mark.timeout(60)
PACKAGE = """
from gateway.tools.functions import FunctionTool

def build(greeting="hello"):
    async def greet(arguments):
        return f"{greeting} {arguments['name']}"
    schema = b'{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
    return [FunctionTool(name="greet", description="Greets.", schema=schema, call=greet, read_only=True)]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings the tools `acme`."""
    (tmp_path / "acme_tools.py").write_text(PACKAGE)
    metadata = tmp_path / "acme_tools-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nacme = acme_tools:build\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("acme_tools", None)


def tool(name: str = "f", **fields: Any) -> FunctionTool:
    async def call(arguments: Mapping[str, Any]) -> object:
        if "error" in arguments:
            raise KeyError(arguments["error"])
        if "wait" in arguments:
            await asyncio.Event().wait()
        return arguments.get("give", "ok")

    return FunctionTool(name=name, call=call, **fields)


@pytest.mark.usefixtures("package")
async def test_a_function_of_a_package_is_called_as_a_tool_of_a_server_is() -> None:
    extra = "tools: {functions: {acme: {use: acme, options: {greeting: hi}, approval: never}}}\n"
    provider = ScriptedProvider("fake", calls(("greet", '{"name": "Ann"}')), says("Greeted."))
    async with running(provider, extra=extra) as gateway:
        response, _ = await streamed(gateway, tools=[{"type": "mcp", "server_label": "acme"}])
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][0]["tools"][0]["input_schema"]["required"] == ["name"]
    assert response["output"][1]["output"] == "hi Ann"


@pytest.mark.usefixtures("package")
async def test_a_function_may_do_what_a_hosted_tool_does() -> None:
    extra = "tools: {functions: {acme: {use: acme}}, web_search: 'functions:acme/greet'}\n"
    provider = ScriptedProvider("fake", calls(("greet", '{"name": "Ann"}')), says("Found."))
    async with running(provider, extra=extra) as gateway:
        assert kinds(await made(gateway, tools=[{"type": "web_search"}])) == ["web_search_call", "message"]


@pytest.mark.usefixtures("package")
def test_what_no_package_brings_or_takes_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"tools\.functions\.x\.use: no installed package brings the tools 'nope'"):
        build_functions("x", Functions(use="nope"))
    with pytest.raises(ValueError, match=r"tools\.functions\.x\.options: .*'color'"):
        build_functions("x", Functions(use="acme", options={"color": 1}))


async def test_a_gateway_with_functions_that_nobody_brings_does_not_start() -> None:
    with pytest.raises(ValueError, match="no installed package"):
        async with running(ScriptedProvider("fake"), extra="tools: {functions: {x: {use: nope}}}\n"):
            pass
    assert configure("tools: {functions: {x: {use: nope}}}\n").run.tools is not None


async def test_an_exception_is_told_to_the_model_and_silence_has_a_limit() -> None:
    server = FunctionServer([tool()], 0.05)
    failed = await server.call("f", {"error": "oh"})
    assert failed.fault is not None
    assert failed.text == "KeyError: 'oh'"
    for arguments, why in (({"wait": 1}, "no answer within 0.05 s"), ({"give": 3}, "expected a text")):
        with pytest.raises(ToolServerError, match=why):
            await server.call("f", arguments)
    with pytest.raises(ToolServerError, match="there is no function 'g'"):
        await server.call("g", {})
    assert (await server.call("f", {})).text == "ok"


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        FunctionServer([tool("a"), tool("a")], 1.0)
