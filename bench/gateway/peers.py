"""Other gateways for compare.py, installed outside this repository: how each is started, and what it asks for.

    mkdir -p ~/peers
    python -m venv ~/peers/litellm && ~/peers/litellm/bin/pip install 'litellm[proxy]'
    npm install --prefix ~/peers/portkey @portkey-ai/gateway@1.15.2 hono@4.9.7 @hono/node-server@1.3.3
    python bench/gateway/compare.py --peers litellm,portkey --peers-in ~/peers

Each is configured for speed as far as its own documents say how, and asks for no key. With later versions of hono's
server Portkey 1.15.2 answers streams with status 500 (Node 20, 2026-11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PEERS", "Peer", "peer"]


@dataclass(frozen=True)
class Peer:
    """`ready` is the path that answers 200 once it serves, `model` what its clients ask for."""

    command: list[str]
    ready: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def peer(name: str, installed: Path, *, port: int, upstream: str, folder: Path) -> Peer:
    """`upstream` is a base URL; `folder` takes a configuration."""
    return PEERS[name](installed / name, port, upstream, folder)


def _litellm(installed: Path, port: int, upstream: str, folder: Path) -> Peer:
    config = folder / f"litellm-{port}.yaml"
    config.write_text(
        "model_list:\n  - model_name: public\n    litellm_params:\n"
        f"      {{model: openai/mock-model, api_base: '{upstream}', api_key: k}}\n"
        "general_settings: {dangerously_permit_weak_or_unset_master_key: true}\n"
    )
    command = [str(installed / "bin/litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    # Without this it asks the network for prices when it starts.
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    return Peer([*command, "--telemetry", "False"], "/health/liveliness", "public", environment=environment)


def _portkey(installed: Path, port: int, upstream: str, folder: Path) -> Peer:
    script = installed / "node_modules/@portkey-ai/gateway/build/start-server.js"
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}
    return Peer(["node", str(script), f"--port={port}", "--headless"], "/", "mock-model", headers)


PEERS = {"litellm": _litellm, "portkey": _portkey}
