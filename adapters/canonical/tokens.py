"""Texts as token ids and back."""

from msgspec import Struct

from adapters.canonical.request import Request

__all__ = ["DetokenizeRequest", "TokenizeRequest", "Tokens"]


class TokenizeRequest(Struct, frozen=True, kw_only=True):
    """The prompt of `request` (messages, or one text) as the model would get it.

    `with_texts`: the client wants each token's text, too.
    """

    request: Request
    with_texts: bool = False

    @property
    def model(self) -> str:
        return self.request.model


class Tokens(Struct, frozen=True, kw_only=True):
    """`texts` are printable stand-ins, one a token, None where they were not asked for. `context`: the window."""

    ids: tuple[int, ...]
    texts: tuple[str, ...] | None = None
    context: int | None = None


class DetokenizeRequest(Struct, frozen=True, kw_only=True):
    model: str
    ids: tuple[int, ...]
    request_id: str | None = None
