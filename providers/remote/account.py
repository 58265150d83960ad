"""One account at a server over HTTP: what every remote provider is, whatever the dialect that it speaks."""

from collections.abc import Awaitable, Callable, Sequence

from providers.base import ModelEntry, Readiness, ReadinessState
from providers.remote.http import HttpClient
from providers.remote.model_list import KeptModels

__all__ = ["ProbedAccount", "RemoteAccount"]

_READY = Readiness(ReadinessState.READY)


class RemoteAccount:
    """The half of `providers.base.Provider` that asks no model.

    A provider adds what the models can do and how they are asked. `fetch_models` gets the list of models anew.
    """

    def __init__(
        self, name: str, client: HttpClient, fetch_models: Callable[[], Awaitable[Sequence[ModelEntry]]]
    ) -> None:
        self.name = name
        self._client = client
        self._models = KeptModels(fetch_models)

    async def start(self) -> None:
        """Nothing runs in the background; the first call opens the first connection."""

    def readiness(self, model: str) -> Readiness:
        """An account is always ready; what it is asked tells whether its server is there."""
        return _READY

    async def models(self) -> Sequence[ModelEntry]:
        """The server's list, kept for a minute."""
        return await self._models.get()

    async def aclose(self) -> None:
        await self._client.aclose()


class ProbedAccount(RemoteAccount):
    """One whose list of models is at the very server that answers; satisfies `providers.abilities.Prober`."""

    async def probe(self) -> None:
        """GET of the list of models."""
        await self._models.renew()
