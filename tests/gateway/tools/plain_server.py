"""An MCP server of an older protocol, written out by hand, which starts in no time: for tests of how servers begin and
end.

    python -m tests.gateway.tools.plain_server [deaf]

`deaf`: it hears nothing for a while once it has listed its tools.
"""

import json
import os
import sys
import time
from typing import Any

ABOUT = {"name": "plain", "version": "1"}
TOOLS = ("add", "whoami", "secret", "die", "hang")
DEAF_S = 3.0


def answer_to(method: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    """None: it is not known here."""
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": ABOUT}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    return said(asked["params"]) if method == "tools/call" else None


def said(called: dict[str, Any]) -> dict[str, Any]:
    given = called.get("arguments") or {}
    match called["name"]:
        case "add":
            text = str(given["a"] + given["b"])
        case "whoami":
            text = str(os.getpid())
        case "secret":
            text = os.environ.get("TOOL_SECRET", "none")
        case _:
            os._exit(3)
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or asked.get("params", {}).get("name") == "hang":
            continue
        result = answer_to(asked["method"], asked)
        told = {"error": {"code": -32601, "message": "not known"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
        if asked["method"] == "tools/list" and "deaf" in sys.argv:
            time.sleep(DEAF_S)


if __name__ == "__main__":
    main()
