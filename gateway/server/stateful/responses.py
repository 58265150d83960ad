"""What is the client's own about the Responses API: which form it reads, and for whom its reasoning is sealed."""

from collections.abc import Callable
from functools import partial

from adapters.canonical.errors import InvalidRequest
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.sealing import Sealer
from adapters.openai.responses.wire_events import OPEN_RESPONSES_FORM, OPENAI_FORM, Form
from gateway.config.sections.state import Responses
from gateway.server.exchange import Exchange
from gateway.storage.place import Place
from gateway.storage.seal_key import kept_secret

__all__ = ["DIALECT_HEADER", "for_client", "sealer"]

DIALECT_HEADER = "x-gateway-dialect"
_FORMS = {form.name: form for form in (OPENAI_FORM, OPEN_RESPONSES_FORM)}
_KEPT = "kept"
"""The id of a key that run.yaml does not name."""


def for_client(front: ResponsesFront, dialect: str) -> Callable[[Exchange], ResponsesFront]:
    """Chooses by the request's header, or else `dialect`, and by its key."""
    default = _FORMS[dialect]

    def choose(exchange: Exchange) -> ResponsesFront:
        return front.for_client(exchange.owner, _form(exchange, default))

    return choose


def _form(exchange: Exchange, default: Form) -> Form:
    word = exchange.request.headers.get(DIALECT_HEADER)
    if word is None:
        return default
    if word not in _FORMS:
        raise InvalidRequest.at(DIALECT_HEADER, f"expected {' or '.join(_FORMS)}")
    return _FORMS[word]


def sealer(section: Responses | None, place: Place) -> Sealer:
    """With the key of run.yaml. Without one, with a key that is kept beside the database."""
    if section is not None and section.seal_key is not None:
        return Sealer(section.seal_key.id, section.seal_key.secret.get_secret_value().encode())
    return Sealer(_KEPT, partial(kept_secret, place))
