"""Where a provider of each type is called unless run.yaml says otherwise. Knows no dialect."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from providers.remote.vendors import VENDORS

__all__ = ["ADDRESSES", "ANTHROPIC", "COHERE", "GEMINI", "OLLAMA", "usual_path"]

ANTHROPIC = "https://api.anthropic.com/v1"
COHERE = "https://api.cohere.com/v2"
GEMINI = "https://generativelanguage.googleapis.com/v1beta"
OLLAMA = "http://localhost:11434"

ADDRESSES: Mapping[str, str | None] = {
    **{name: vendor.base_url for name, vendor in VENDORS.items()},
    "anthropic": ANTHROPIC,
    "cohere": COHERE,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "openai-responses": None,
}
"""By type; None: run.yaml must name it. Types that find it out by other settings are not in here."""

_USUAL_PATHS = {
    "azure": "/openai/v1",
    "databricks": "/serving-endpoints",
    "openai-compatible": "/v1",
    "openai-responses": "/v1",
}


def usual_path(type_name: str) -> str:
    """Below what the APIs of this type mostly lie; empty: below nothing, or nobody knows."""
    return _USUAL_PATHS.get(type_name) or urlsplit(ADDRESSES.get(type_name) or "").path
