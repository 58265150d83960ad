"""Fields that run.yaml adds to every request of a provider (`params:`)."""

from collections.abc import Collection, Mapping

from msgspec.json import encode

from providers.base import ProviderSettings

__all__ = ["default_fields"]

_AS_THEY_ARE: Mapping[str, str] = {}


def default_fields(
    settings: ProviderSettings, never: Collection[str], spellings: Mapping[str, str] = _AS_THEY_ARE
) -> dict[str, bytes]:
    """Raw JSON by name. `spellings` are the upstream's names of some. Raises ValueError for one of `never`, which each
    request has by itself."""
    for name in settings.params:
        if name in never:
            raise ValueError(f"providers.{settings.name}.params.{name}: this field can't have a default")
    return {spellings.get(name, name): encode(value) for name, value in settings.params.items()}
