"""Answers that are longer than one call gives: the same request goes on with the token that came with CONTINUATION."""

from collections.abc import Sequence

from msgspec.structs import replace

from adapters.canonical.events import Event, ProviderReported
from adapters.canonical.request import Request

__all__ = ["CONTINUATION_TOKEN", "Continuation"]

CONTINUATION_TOKEN = "continuationToken"  # a field's name


class Continuation:
    """Of one call. The upstream may tell more than one token: the last one counts."""

    in_same_part = True

    def __init__(self) -> None:
        self._token: bytes | None = None

    def feed(self, batch: Sequence[Event]) -> None:
        for event in batch:
            if type(event) is ProviderReported:
                self._token = event.fields.get(CONTINUATION_TOKEN, self._token)

    def resumed(self, request: Request) -> Request | None:
        """None without a token, or where it says no more than the one that was sent."""
        if self._token is None or self._token == request.extras.get(CONTINUATION_TOKEN):
            return None
        return replace(request, extras={**request.extras, CONTINUATION_TOKEN: self._token})
