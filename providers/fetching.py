"""How a provider gets what an address in a request points to: it is handed a fetcher, and never dials itself."""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Fetched", "Fetcher"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """`media_type` is what the other side calls it, in lower case and without parameters; empty: it does not say."""

    data: bytes
    media_type: str


class Fetcher(Protocol):
    async def fetch(self, url: str, *, param: str | None = None) -> Fetched:
        """The file at an http, https or data URL, as far as run.yaml allows it.

        Raises InvalidRequest, naming `param` and never an address that the name resolved to.
        """
        ...
