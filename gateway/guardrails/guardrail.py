"""What a guardrail is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Guardrail", "Subject", "TextFilter"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Which request a text belongs to. `key` is the id of the client's key."""

    model: str
    request_id: str | None = None
    key: str | None = None


class TextFilter(Protocol):
    """Looks at one text while it is written; made anew for each. What comes out must not depend on where it was cut."""

    async def feed(self, text: str) -> str:
        """What may be passed on now, of this and of what was held back. Raises ContentRefused."""
        ...

    async def finish(self) -> str:
        """The rest. Raises ContentRefused."""
        ...


class Guardrail(Protocol):
    """Built once from its entry in run.yaml; used by many requests at a time."""

    async def check_input(self, texts: Sequence[str], subject: Subject) -> Sequence[str]:
        """The texts of a request as they may be sent on, each at its place. Raises ContentRefused."""
        ...

    def output_filter(self, subject: Subject) -> TextFilter:
        """For one text of the answer."""
        ...

    async def aclose(self) -> None: ...
