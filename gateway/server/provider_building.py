"""Providers from the configuration: each entry as the settings that its type is built with."""

from collections.abc import Mapping

from gateway.config import Config, ProviderConfig
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.providers import RemoteProvider
from gateway.config.sections.section import revealed
from gateway.server.inheritance import NOTHING
from gateway.version import VERSION
from providers.base import Limits, Provider, ProviderSettings
from providers.fetching import Fetcher
from providers.registry import build as build_provider

__all__ = ["build_provider_of", "build_providers"]


def build_providers(
    config: Config, fetcher: Fetcher | None = None, there: Mapping[str, Provider] = NOTHING.providers
) -> dict[str, Provider]:
    """The configured providers, not started, those that are `there` as they are.

    Raises ValueError or ImportError, naming the provider.
    """
    return {name: there.get(name) or build_provider_of(config, name, fetcher) for name in config.providers}


def build_provider_of(config: Config, name: str, fetcher: Fetcher | None) -> Provider:
    """The configured provider of this name, not started. Raises ValueError or ImportError, naming it."""
    entry = config.providers[name]
    timeouts = config.reliability.timeouts
    if isinstance(entry, RemoteProvider):
        timeouts = timeouts.model_copy(update=entry.timeouts.model_dump(exclude_none=True))
    limits = Limits(
        connect_s=timeouts.connect_s,
        first_token_s=timeouts.first_token_s,
        gap_s=timeouts.gap_s,
        total_s=timeouts.total_s,
        whole_s=timeouts.total_s / 2 if timeouts.whole_s is None else timeouts.whole_s,
    )
    may_bring = config.server.request_templates
    return build_provider(_settings(name, entry, limits, fetcher, request_templates=may_bring))


def _settings(
    name: str, entry: ProviderConfig, limits: Limits, fetcher: Fetcher | None, *, request_templates: bool
) -> ProviderSettings:
    if isinstance(entry, LocalProvider):
        general = {"type", "enabled", "params", "unsupported_params", "model"}
        return ProviderSettings(
            name=name,
            type=entry.type,
            params=entry.params,
            limits=limits,
            options={**entry.model_dump(exclude=general), "request_templates": request_templates},
            fetcher=fetcher,
        )
    general = {"type", "enabled", "base_url", "api_key", "headers", "proxy", "max_connections", "params"}
    general |= {"ca_file", "client_cert", "client_key", "timeouts", "unsupported_params"}
    return ProviderSettings(
        name=name,
        type=entry.type,
        base_url=entry.base_url,
        api_key=entry.api_key.get_secret_value() if entry.api_key is not None else None,
        headers=revealed(entry.headers),
        proxy=entry.proxy.get_secret_value() if entry.proxy is not None else None,
        ca_file=entry.ca_file,
        client_cert=entry.client_cert,
        client_key=entry.client_key,
        max_connections=entry.max_connections,
        user_agent=f"llm-protocol-gateway/{VERSION}",
        params=entry.params,
        limits=limits,
        options=entry.model_dump(exclude=general, exclude_none=True),
        fetcher=fetcher,
    )
