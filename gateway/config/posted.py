"""A section that comes as the body of a request."""

from typing import TypeVar

from pydantic import ValidationError

from adapters.canonical.errors import InvalidRequest
from gateway.config.sections.section import Section

__all__ = ["parse_posted"]

S = TypeVar("S", bound=Section)


def parse_posted(kind: type[S], body: bytes) -> S:
    """Raises InvalidRequest, naming the path of what is wrong first."""
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidRequest(f"{path or 'body'}: {first['msg']}", param=path or None) from None
