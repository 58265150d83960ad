"""Law 8 as checks for the field walks of every dialect: what becomes of a field where a target has no word for it."""

from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from gateway.routing.requirements import fit
from providers.base import Capabilities
from providers.remote.vendors import VENDORS
from tests.adapters.sides import Sides

__all__ = ["check_hint", "check_of_one_dialect", "check_spelled", "refused_param"]

_OPENAI = VENDORS["openai"]
_ELSEWHERE = Capabilities(fields=_OPENAI.fields, forwards=_OPENAI.forwards, parts=_OPENAI.parts)
_NOTHING = Capabilities(fields=frozenset(("max_tokens",)))


def check_of_one_dialect(exchange: Sides, name: str) -> None:
    """A field that its own dialect alone knows is refused by name elsewhere, or dropped and listed."""
    assert _lacked(exchange, _ELSEWHERE) == name
    spell: Any = exchange.front.client_field
    assert fit(exchange.request, _ELSEWHERE, spell, drop=True, completions_as_chat=False).dropped == (name,)


def check_hint(exchange: Sides, name: str) -> None:
    """What says nothing about the answer is left out elsewhere, and listed; run.yaml need not allow it."""
    spell: Any = exchange.front.client_field
    found = fit(exchange.request, _ELSEWHERE, spell, drop=False, completions_as_chat=False)
    assert found.dropped == (name,)
    assert found.request.extras == {}


def check_spelled(exchange: Sides, param: str) -> None:
    """What a target lacks is named as this client spells it."""
    assert _lacked(exchange, _NOTHING) == param


def refused_param(exchange: Sides) -> str | None:
    """What a request is refused for that its target would refuse."""
    with pytest.raises(InvalidRequest) as caught:
        exchange.sent()
    return caught.value.param


def _lacked(exchange: Sides, capabilities: Capabilities) -> str | None:
    with pytest.raises(UnsupportedParameter) as caught:
        fit(exchange.request, capabilities, exchange.front.client_field, drop=False, completions_as_chat=False)
    return caught.value.param
