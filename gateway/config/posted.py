"""A section that comes as the body of a request."""

from typing import TypeVar

from pydantic import ValidationError

from adapters.canonical.errors import InvalidRequest
from gateway.config.expectations import describe
from gateway.config.faults import render_location
from gateway.config.sections.section import Section

__all__ = ["parse_posted"]

S = TypeVar("S", bound=Section)


def parse_posted(kind: type[S], body: bytes) -> S:
    """Raises InvalidRequest, naming the path of what is wrong first."""
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = render_location(first["loc"])
        raise InvalidRequest(f"{path or 'body'}: {describe(kind, first)}", param=path or None) from None
