"""The Responses API towards clients."""

from collections.abc import Callable

from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.front import AnswerHead
from adapters.openai.errors import render_error
from adapters.openai.request_fields import client_field
from adapters.openai.responses.event_log import EventLog, Unheard
from adapters.openai.responses.live import LiveResponse
from adapters.openai.responses.parse import read_body, refuse_state
from adapters.openai.responses.render import ResponseStreamRenderer, render_response_result
from adapters.openai.responses.sealing import ClientSeal, Sealer
from adapters.openai.responses.vocabulary import SPELLINGS
from adapters.openai.responses.wire_events import OPENAI_FORM, Form
from adapters.openai.vocabulary import KEEPALIVE, RESPONSES, RESPONSES_FIELDS

__all__ = ["ResponsesFront"]


class ResponsesFront:
    """POST /v1/responses for clients of one form, without a store. `owner` names the client's key ("": there is none);
    what is sealed for one owner opens for no other. `now` gives Unix seconds."""

    dialect = RESPONSES
    id_prefix = "resp_"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = KEEPALIVE
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    render_error = staticmethod(render_error)

    def __init__(self, sealer: Sealer, now: Callable[[], float], *, form: Form = OPENAI_FORM, owner: str = "") -> None:
        self._sealer = sealer
        self._now = now
        self.form = form
        self.seal = ClientSeal(sealer, owner)

    def for_client(self, owner: str, form: Form) -> "ResponsesFront":
        """The same for another client."""
        return ResponsesFront(self._sealer, self._now, form=form, owner=owner)

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        asked = read_body(body, max_depth=max_depth)
        refuse_state(asked.state)
        return asked.request(self.seal)

    def live(self, request: Request, head: AnswerHead, *, heard: bool = True) -> LiveResponse:
        """The response to a request, before anything of it is made. `heard` False: nobody wants its events."""
        log = EventLog() if heard else Unheard()
        return LiveResponse(request, head, form=self.form, seal=self.seal, now=self._now, log=log)

    def renderer(self, request: Request, head: AnswerHead) -> ResponseStreamRenderer:
        return ResponseStreamRenderer(self.live(request, head))

    def render_result(self, request: Request, result: Result, head: AnswerHead) -> bytes:
        return render_response_result(self.live(request, head, heard=False), result)

    def client_field(self, name: str) -> str:
        return SPELLINGS.get(name) or client_field(name, RESPONSES_FIELDS)
