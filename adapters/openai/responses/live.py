"""A response while it is made: events of a provider in, events of its stream out, and the object at each moment.

    queue()? start() feed(events)* (finish() | fail(error) | cancel())

Each call gives the events that it leads to, numbered on. Ids follow from the response's id and an item's place, so a
stream and a body of the same answer agree. Whoever keeps responses reads `snapshot` and `kept_items`. No I/O here.
"""

from collections.abc import Callable, Sequence
from typing import Any

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    UsageReported,
)
from adapters.canonical.messages import ASSISTANT, Message
from adapters.canonical.request import Request
from adapters.canonical.result import Folder
from adapters.canonical.stop_reason import GIVEN_UP
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.openai.content import message_object
from adapters.openai.finish import finish_fields
from adapters.openai.prompt_report import prompt_fields
from adapters.openai.responses.event_log import EventLog
from adapters.openai.responses.output import Output
from adapters.openai.responses.response_object import FINAL, ResponseObject
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.tool_history import plain_messages
from adapters.openai.responses.vocabulary import INCOMPLETE_REASONS, INPUT_MESSAGES
from adapters.openai.responses.wire_events import Form, ResponseEvent, error_event
from adapters.openai.vocabulary import CHAT, RESPONSES
from adapters.raw_json import fragments
from adapters.upstream_errors import given_up, no_finish

__all__ = ["LiveResponse"]


class LiveResponse:
    """`now` gives Unix seconds."""

    def __init__(
        self,
        request: Request,
        head: AnswerHead,
        *,
        form: Form,
        seal: ClientSeal,
        now: Callable[[], float],
        log: EventLog,
    ) -> None:
        self.status = "queued"
        self.usage: Usage | None = None
        self._form = form
        self._log = log
        self._output = Output(request, head.id, log, form, seal)
        self._object = ResponseObject(request, head)
        self._now = now
        self._created = False
        self._finish: ChoiceFinished | None = None
        self._error: GatewayError | None = None
        self._completed_at: int | None = None
        self._more: dict[str, Any] = {}
        self._token_ids: list[int] = []
        self._folder = Folder() if INPUT_MESSAGES in request.mirrored else None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def snapshot(self) -> bytes:
        """The Response object as JSON."""
        unfinished = "incomplete" if self.is_final else "in_progress"
        return self._object.render(
            self.status,
            self._output.render(unfinished),
            usage=self.usage,
            error=self._error,
            incomplete=self._incomplete_reason if self.status == "incomplete" else None,
            completed_at=self._completed_at,
            more=self._more,
        )

    def kept_items(self) -> list[bytes]:
        """The output items with everything that a later turn needs (reasoning is sealed, also if nobody asked)."""
        return self._output.render("incomplete" if self.is_final else "in_progress", keeps=True)

    def queue(self) -> list[ResponseEvent]:
        """It waits for its turn."""
        self._log.say_response(self.snapshot, "response.created", "response.queued")
        self._created = True
        return self._log.take()

    def start(self) -> list[ResponseEvent]:
        """It is being made."""
        self._start()
        return self._log.take()

    def feed(self, events: Sequence[Event]) -> list[ResponseEvent]:
        """Raises UpstreamError where the upstream gave the answer up."""
        if self.status == "queued":
            self._start()
        if self._folder is not None:
            self._folder.feed(events)
        feed = self._output.feed
        for event in events:
            if type(event) is TextDelta or type(event) is ReasoningDelta:
                if event.token_ids:
                    self._token_ids += event.token_ids
                feed(event)
            elif type(event) is ToolArgumentsDelta:
                feed(event)
            else:
                self._feed_other(event)
        return self._log.take()

    def finish(self) -> list[ResponseEvent]:
        """The answer is whole, or cut."""
        if self._finish is None:
            raise no_finish()
        if self._token_ids:
            self._more["token_ids"] = self._token_ids
        if self._folder is not None:
            parts = self._folder.result().choices[0].parts
            said = plain_messages([Message(role=ASSISTANT, parts=parts)])
            self._more["output_messages"] = [found for message in said for found in message_object(message)]
        if self._incomplete_reason is not None:
            return self._end("incomplete", "response.incomplete")
        self._completed_at = int(self._now())
        return self._end("completed", "response.completed")

    def fail(self, error: GatewayError) -> list[ResponseEvent]:
        """It failed; what was made until now stays, incomplete. Nothing follows a state that is final already."""
        if self.is_final:
            return []
        if self.status == "queued":
            self._start()
        self._error = error
        return self._end("failed", "response.failed")

    def lose(self, error: GatewayError) -> ResponseEvent:
        """In place of the last event, where that was not sent: the response ended, but what came of it is lost."""
        return error_event(error, self._log.number - 1, self._form)

    def cancel(self) -> list[ResponseEvent]:
        """Somebody cancelled it. The API has no event of its own for that."""
        if self.is_final:
            return []
        if not self._created:
            self._start()
        return self._end("cancelled", "response.failed")

    @property
    def _incomplete_reason(self) -> str | None:
        return None if self._finish is None else INCOMPLETE_REASONS.get(self._finish.reason)

    def _start(self) -> None:
        self.status = "in_progress"
        created = () if self._created else ("response.created",)
        self._created = True
        self._log.say_response(self.snapshot, *created, "response.in_progress")

    def _end(self, status: str, name: str) -> list[ResponseEvent]:
        self.status = status
        self._log.say_response(self.snapshot, name)
        return self._log.take()

    def _feed_other(self, event: Event) -> None:
        match event:
            case ChoiceFinished():
                self._finish_output(event)
            case UsageReported():
                self.usage = event.usage
            case ProviderReported():
                self._report(event)
            case PromptReported():
                self._more.update(fragments(prompt_fields(event)))
            case Started():
                pass  # the gateway's own id and time stand in the object
            case _:
                self._output.feed(event)

    def _finish_output(self, event: ChoiceFinished) -> None:
        if event.reason in GIVEN_UP:
            raise given_up(event.word)
        self._finish = event
        self._more.update(finish_fields(event))
        self._output.finish(cut=event.reason in INCOMPLETE_REASONS)

    def _report(self, event: ProviderReported) -> None:
        if event.origin == RESPONSES:
            self._object.report(event.fields)
        elif event.origin == CHAT and "service_tier" in event.fields:
            self._object.report({"service_tier": event.fields["service_tier"]})
