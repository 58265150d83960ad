"""The sources of tools as the whole gateway has them."""

import subprocess
import sys
import textwrap

import pytest

from gateway.config.sections.tools import Fetch, McpServer, Tools
from gateway.tools.tool_servers import ToolServers
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import configure, running
from tests.gateway.tools.asking import SMALL, calls, made, says, tools
from tests.gateway.tools.serving import ROOT

pytestmark = pytest.mark.timeout(60)


async def test_a_reload_keeps_the_servers_unless_what_run_yaml_says_of_them_changed(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("whoami", "{}")), says("ok"))
    async with running(provider, extra=tools(url)) as gateway:
        await made(gateway, tools=[SMALL])
        same = gateway.app.inheritance(configure(tools(url) + "telemetry: {prometheus: true}\n")).tools
        assert same is not None
        assert same.declared("small") is not None
        for changed in (tools(url, ", approval: never"), tools(url) + "fetch: {max_mb: 1}\n"):
            assert gateway.app.inheritance(configure(changed)).tools is None


def test_without_the_extra_the_gateway_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.tools.tool_servers.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"llm-protocol-gateway\[mcp\]"):
        ToolServers(Tools(mcp={"x": McpServer(url="http://h/")}), Fetch(), clock=float, lost=lambda name, why: None)
    ToolServers(Tools(), Fetch(), clock=float, lost=lambda name, why: None)


def test_a_gateway_that_starts_with_servers_does_not_import_the_mcp_package() -> None:
    script = """
        import asyncio, sys
        from tests.gateway.server.running import running
        from providers.testing.scripted import ScriptedProvider

        async def main():
            extra = "tools: {mcp: {x: {command: [nothing]}}}\\n"
            async with running(ScriptedProvider("fake"), extra=extra):
                print("mcp" in sys.modules, "starlette" in sys.modules)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"
