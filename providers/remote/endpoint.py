"""Where an OpenAI-shaped server takes calls for a model, and what proves who calls: hosts have ways of their own."""

from typing import Protocol

from providers.remote.http import Sign

__all__ = ["PLAIN", "Endpoint"]


class Endpoint(Protocol):
    """`sign` None: the key's header says it all."""

    @property
    def sign(self) -> Sign | None: ...

    @property
    def list_path(self) -> str:
        """Of the list of models."""
        ...

    def path(self, path: str, model: str) -> str:
        """Below the base URL, with its query."""
        ...

    def upstream_model(self, model: str) -> str:
        """What the host calls this model."""
        ...


class _Plain:
    sign: Sign | None = None
    list_path = "/models"

    def path(self, path: str, model: str) -> str:
        return path

    def upstream_model(self, model: str) -> str:
        return model


PLAIN: Endpoint = _Plain()
