"""Loads configurations that name the environment variables of deploy/compose.yaml."""

from gateway.config import Config, parse_config
from providers.registry import provider_types

__all__ = ["load"]

_NAMES = ("OPENAI_API_KEY", "TEAM_A_KEY", "ADMIN_KEY", "KEY_PEPPER", "POSTGRES_PASSWORD")


def load(text: str) -> Config:
    values = {name: f"value-of-{name.lower()}" for name in _NAMES}
    return parse_config(text, values, provider_types=provider_types())
