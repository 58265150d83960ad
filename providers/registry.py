"""Provider types by name: the built-in ones, and those of other packages (entry-point group `llm_gateway.providers`).

Names are cheap to list; a type's code is imported when one is built. Builds from settings and knows no configuration.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from adapters.nearest_name import did_you_mean_or_all
from providers.base import Provider, ProviderSettings
from providers.remote.vendors import VENDORS

__all__ = ["ENTRY_POINT_GROUP", "UnknownProviderType", "build", "missing_extra", "provider_types"]

ENTRY_POINT_GROUP = "llm_gateway.providers"

Factory = Callable[[ProviderSettings], Provider]
"""A class or a function. Opens nothing; raises ValueError on settings that can't work."""

_BUILT_IN = dict.fromkeys(VENDORS, "providers.remote.openai_compatible:build") | {
    "azure": "providers.remote.azure:build",
    "anthropic": "providers.remote.anthropic:AnthropicProvider",
    "bedrock": "providers.remote.bedrock:BedrockProvider",
    "cohere": "providers.remote.cohere:CohereProvider",
    "gemini": "providers.remote.gemini:GeminiProvider",
    "ollama": "providers.remote.ollama:OllamaProvider",
    "openai-responses": "providers.remote.openai_responses:OpenAIResponses",
    "local": "providers.local.provider:LocalProvider",
}

_NEEDS = {"local": ("torch", "gguf", "tokenizers", "jinja2", "safetensors")}
"""Types that need the extra of their own name, and what it brings."""

_TEXT_FORMATS = ("reasoning_format", "tool_format")
"""Options that only the types of `providers.remote.vendors` have. (Local models have their own.)"""


class UnknownProviderType(ValueError):
    """No provider has this type name; the message names the nearest one."""


def provider_types() -> frozenset[str]:
    """Every type name that `build` takes. Reads package metadata, imports nothing."""
    return frozenset(_BUILT_IN) | frozenset(_entry_points())


def build(settings: ProviderSettings) -> Provider:
    """The provider for these settings. Nothing is opened or fetched yet.

    Raises UnknownProviderType, or ValueError on settings that can't work, or ImportError where an extra is missing.
    """
    for key in _TEXT_FORMATS:
        if settings.type in _BUILT_IN and settings.type not in VENDORS and settings.options.get(key) is not None:
            raise ValueError(f"providers.{settings.name}.{key}: only for servers of OpenAI's chat dialect")
    if missing := missing_extra(settings.type):
        raise ImportError(f"providers.{settings.name}: {missing}")
    return _factory(settings.type)(settings)


def missing_extra(type_name: str) -> str | None:
    """What has to be installed before a provider of this type can be built; None: nothing. Imports nothing."""
    missing = [package for package in _NEEDS.get(type_name, ()) if find_spec(package) is None]
    if not missing:
        return None
    return f"needs {', '.join(missing)}: pip install 'llm-protocol-gateway[{type_name}]'"


def _factory(type_name: str) -> Factory:
    target = _BUILT_IN.get(type_name)
    if target is not None:
        module, _, attribute = target.partition(":")
        factory: Factory = getattr(import_module(module), attribute)
        return factory
    found = _entry_points().get(type_name)
    if found is not None:
        loaded: Factory = found.load()
        return loaded
    meant = did_you_mean_or_all(type_name, sorted(provider_types()))
    raise UnknownProviderType(f"unknown provider type '{type_name}'{meant}")


def _entry_points() -> dict[str, EntryPoint]:
    """Third parties' types; the built-in names are taken."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name not in _BUILT_IN}
