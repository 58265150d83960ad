"""Loads a configuration from text and tells its faults, for the tests beside it."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.config import Config, ConfigError, parse_config

TYPES = (
    "anthropic",
    "azure",
    "bedrock",
    "databricks",
    "gemini",
    "llama.cpp",
    "local",
    "mistral",
    "ollama",
    "openai",
    "openai-compatible",
    "openai-responses",
)
BASE = "version: 1\nproviders:\n  local: {model: tiny}\n"


def load(text: str, env: Mapping[str, str] | None = None, path: Path = Path("run.yaml")) -> Config:
    return parse_config(dedent(text), env or {}, provider_types=TYPES, path=path)


def faults(text: str, env: Mapping[str, str] | None = None, path: Path = Path("run.yaml")) -> list[str]:
    """The lines of the error that loading `text` ends in."""
    with pytest.raises(ConfigError) as caught:
        load(text, env, path)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return list(caught.value.lines)


def fault(text: str, env: Mapping[str, str] | None = None, path: Path = Path("run.yaml")) -> str:
    """The only line of the error that loading `text` ends in."""
    lines = faults(text, env, path)
    assert len(lines) == 1, lines
    return lines[0]
