"""What a name stands for: an ordered list of targets, and the fields that an alias sets."""

from dataclasses import dataclass

from gateway.routing.defaults import Defaults
from providers.base import Provider

__all__ = ["Route", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """One model of one provider. `model` is the provider's own name, `adapter` a LoRA on top of it."""

    provider: Provider
    model: str
    adapter: str | None = None
    drops_unsupported: bool = False
    """Fields that it cannot express are dropped and listed, where otherwise they are refused by name."""

    @property
    def label(self) -> str:
        return f"{self.provider.name}/{self.model}"


@dataclass(frozen=True, slots=True)
class Route:
    """`targets` in the order in which they are tried."""

    targets: tuple[Target, ...]
    defaults: Defaults | None = None
