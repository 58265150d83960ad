"""What travels over a WebSocket of the Responses API: requests as events, and errors that are not a response's own."""

from typing import NamedTuple

import orjson
from msgspec import Raw

from adapters.canonical.errors import GatewayError, InvalidRequest, UnsupportedParameter
from adapters.field_types import BOOL, NAME, TEXT
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.errors import error_object
from adapters.openai.responses.parse import Asked

__all__ = ["SocketRequest", "on_lane", "read_event", "socket_error"]

_CREATE = "response.create"
_PROCESSED = "response.processed"
"""The client has read a response; nothing is kept until it has."""
_STEER, _STEER_FAILED = "response.steer", "response.steer.failed"
_OF_STEERING = ("input", "previous_response_id")
_NO_STEERING = "a response cannot be steered here; send the input with response.create once it has ended"
_ALWAYS = {"stream": Raw(b"true")}


class SteeringRefused(InvalidRequest):
    """`response.steer`: what the client wanted to put in between comes back to it, as the API has it."""

    def __init__(self, body: JsonObject) -> None:
        super().__init__(_NO_STEERING, code="steering_not_supported")
        self._told = {name: orjson.Fragment(raw) for name, raw in body.rest().items() if name in _OF_STEERING}

    def event(self) -> bytes:
        error = {"code": self.code, "message": self.message}
        return orjson.dumps({"type": _STEER_FAILED, "sequence_number": 0, "error": error, "steer": self._told})


class SocketRequest(NamedTuple):
    """`lane` is the client's `stream_id`, which its events say again. `generates` False: only the input is prepared."""

    body: JsonObject
    lane: str | None
    generates: bool

    def asked(self) -> Asked:
        """To be called once. Raises InvalidRequest, naming the path."""
        asked = Asked(self.body)
        if asked.state.background:
            raise UnsupportedParameter.at("background", "not over a WebSocket")
        return asked


def read_event(raw: bytes, *, max_depth: int) -> SocketRequest | None:
    """The request for a response in a client's event, None for one that asks for nothing. Raises InvalidRequest, naming
    the path."""
    body = parse_object(raw, max_depth=max_depth)
    kind = body.require("type", TEXT)
    if kind == _STEER:
        raise SteeringRefused(body)
    if kind == _PROCESSED:
        return None
    if kind != _CREATE:
        raise InvalidRequest.at("type", f"expected {_CREATE}", code="unknown_event")
    lane = body.take("stream_id", NAME)
    generates = body.take("generate", BOOL) is not False
    fields = {name: Raw(value) for name, value in body.rest().items()}
    return SocketRequest(JsonObject({**fields, **_ALWAYS}), lane, generates)


def on_lane(event: bytes, lane: str | None) -> bytes:
    """The event (a JSON object) as its lane has it."""
    return event if lane is None else b'%b,"stream_id":%b}' % (event[:-1], orjson.dumps(lane))


def socket_error(error: GatewayError) -> bytes:
    """An error as an event; `status` is what an HTTP answer would have."""
    if isinstance(error, SteeringRefused):
        return error.event()
    return orjson.dumps({"type": "error", "status": error.status, "error": error_object(error)})
