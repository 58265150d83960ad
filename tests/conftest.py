"""Fixtures that tests of several packages share."""

from pathlib import Path

import pytest

from providers.local.model_source import fetch


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The built-in small model as a GGUF file; it lies in the user's cache, so it is fetched once per machine."""
    return fetch("smollm2-135m-instruct")
