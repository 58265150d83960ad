"""`alerts:`: what people are told beside the requests, and where."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.sections.section import FrozenMap, Secret, Section, empty_map

__all__ = ["Alerts"]


def _web_address(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an http:// or https:// address")
    return value


Share = Annotated[float, Field(gt=0, lt=1)]


class Alerts(Section):
    webhook: Annotated[SecretStr, AfterValidator(_web_address)] = Field(
        description="Where alerts are posted to as JSON, as a chat's incoming webhook; such an address is a secret."
    )
    headers: FrozenMap[Secret] = Field(
        default_factory=empty_map, description="Headers of every call of the webhook, such as its key."
    )
    budget: tuple[Share, ...] = Field(
        default=(0.8,), description="Shares of a budget, from 0 to 1, that are told when they are used."
    )
