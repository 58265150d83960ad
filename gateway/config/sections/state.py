"""`responses:`, `storage:`, `shared:`, `cache:`: what is kept, where, and for how long."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo

from gateway.config.sections.section import Amount, Name, Positive, Secret, Section, folder_of
from gateway.storage.place import from_folder

__all__ = ["Background", "Cache", "ExactCache", "Responses", "SealKey", "Shared", "Storage"]


class Background(Section):
    parallel: Positive = Field(default=64, description="Background responses at the same time.")
    queue: Positive = Field(default=1000, description="Background responses that may wait.")


class SealKey(Section):
    id: Name = Field(description="Name of the key.")
    secret: Secret = Field(description="The key itself.")


class Responses(Section):
    ttl_days: float = Field(default=30, gt=0, description="Days that a response is kept.")
    max_gb: float = Field(default=10, gt=0, description="Space for responses, in GiB.")
    background: Background = Field(default_factory=Background, description="Limits of background responses.")
    seal_key: SealKey | None = Field(default=None, description="Seals encrypted reasoning; default: one is made.")


def _from_its_folder(url: SecretStr, info: ValidationInfo) -> SecretStr:
    return SecretStr(from_folder(url.get_secret_value(), folder_of(info)))


class Storage(Section):
    url: Annotated[SecretStr, AfterValidator(_from_its_folder)] = Field(
        description="sqlite:///file, postgresql://..., or memory."
    )


class Shared(Section):
    url: SecretStr = Field(description="redis://... for several replicas.")


class ExactCache(Section):
    ttl_s: Amount = Field(default=300, description="Seconds that an answer is kept.")
    max_mb: Positive = Field(default=256, description="Space for answers, in MiB.")


class Cache(Section):
    exact: ExactCache | None = Field(default=None, description="Answers for requests that are the same.")
