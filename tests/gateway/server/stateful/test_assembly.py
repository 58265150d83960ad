"""When the database is opened."""

import os
from pathlib import Path

import pytest

from gateway.config import parse_config
from gateway.server.app import build_app

ONE = "version: 1\nproviders: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:1/v1'}}\n"


@pytest.mark.parametrize(
    ("extra", "is_opened"),
    [
        ("", False),
        ("auth: {keys: [{id: some, secret: a-secret-of-some-length}]}\n", True),
        ("storage: {url: 'sqlite:///HERE/gateway.db'}\n", True),
    ],
)
async def test_a_new_file_is_opened_at_the_start_only_where_it_will_be_needed(
    extra: str, is_opened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_GATEWAY_DATA", str(tmp_path))
    text = ONE + extra.replace("HERE", str(tmp_path))
    app = build_app(parse_config(text, {}, provider_types=["openai-compatible"]))
    try:
        await app.start()
        assert ("gateway.db" in os.listdir(tmp_path)) is is_opened
    finally:
        await app.aclose()
