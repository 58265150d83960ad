"""`gateway models`: what can be called, asked of the running gateway, or read from run.yaml if none answers."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gateway.cli.configuration import Endpoint, client_key, endpoint, load
from gateway.cli.failure import CommandFailed
from gateway.cli.table import print_table

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "list what can be called"
EXAMPLE = "gateway models --config run.yaml"

_TIMEOUT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the configuration."""


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    there = endpoint(config)
    rows = _ask(there, client_key(config))
    if rows is None:
        print(f"gateway: no gateway answers at {there.name}; this is what {arguments.config} says", file=sys.stderr)
        rows = _configured(config)
    print_table("Models", ("name", "owner", "context", "takes", "$ in/out"), rows)
    if not rows:
        print("gateway: no model can be called", file=sys.stderr)
    return 0


def _ask(there: Endpoint, key: str | None) -> list[tuple[str, ...]] | None:
    """The rows of GET /v1/models; None if what answers is not a gateway. Raises CommandFailed where it refuses us."""
    import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        transport = httpx.HTTPTransport(verify=there.trust or True, uds=there.socket_file)
        with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client:
            answer = client.get(f"{there.url}/models", headers=headers)
        if answer.status_code in (401, 403):
            why = answer.json()["error"]["message"]
            raise CommandFailed(f"the gateway at {there.name} refuses the key of this configuration: {why}")
        answer.raise_for_status()
        entries = answer.json()["data"]
        return [
            (str(entry["id"]), str(entry.get("owned_by", "")), str(entry.get("context_window", "")), *_told(entry))
            for entry in entries
        ]
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _told(entry: dict[str, Any]) -> tuple[str, str]:
    """What the gateway knows of a model: what it takes, and dollars for a million tokens."""
    known = entry.get("gateway", {})
    abilities = [word for word in ("tools", "reasoning") if known.get(word)]
    prices = known.get("prices")
    cost = f"{prices['input']:g} / {prices['output']:g}" if prices else ""
    return ", ".join([*known.get("input", [])[1:], *abilities]), cost


def _configured(config: "Config") -> list[tuple[str, ...]]:
    """The public names, then the models of this process. Remote providers are not asked."""
    from gateway.config.sections.local import LocalProvider

    rows: list[tuple[str, ...]] = [(name, "gateway", "", "", "") for name in config.models]
    for name, provider in config.providers.items():
        if isinstance(provider, LocalProvider):
            for model, entry in provider.models.items():
                rows.append((f"{name}/{model}", name, str(entry.context or ""), "", ""))
    return rows
