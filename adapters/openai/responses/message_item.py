"""A message of an answer while it is made, with its texts, refusals and citations."""

from typing import Any

import orjson

from adapters.canonical.citation import Citation
from adapters.canonical.messages import ProviderData
from adapters.canonical.usage import TokenLogprob
from adapters.openai.annotations import responses_annotation
from adapters.openai.logprobs import logprob_objects
from adapters.openai.responses.content import add_own_fields
from adapters.openai.responses.event_log import EventLog
from adapters.openai.responses.output_items import Place
from adapters.openai.responses.vocabulary import MESSAGE

__all__ = ["MessageItem"]


class _Content:
    """One content part of a message: `kind` is output_text or refusal."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.pieces: list[str] = []
        self.logprobs: list[dict[str, Any]] = []
        self.annotations: list[orjson.Fragment] = []
        self.of_whole: list[Citation] = []

    def object(self, text: str) -> dict[str, Any]:
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": self.annotations, "logprobs": self.logprobs}


class MessageItem:
    """A message; its content parts follow each other, one open at a time."""

    def __init__(self, item_id: str, index: int, data: ProviderData | None) -> None:
        self._place = Place(item_id, index)
        self.index = index
        self._data = data
        self._closed: list[dict[str, Any]] = []
        self._open: _Content | None = None
        self._part_place = b""
        """Where the open part stands, as fields of its events."""

    def begin_part(self, log: EventLog, kind: str) -> None:
        """Ends the open part and begins another."""
        self.end_part(log)
        self._open = content = _Content(kind, len(self._closed))
        fields = {**self._place.fields, "content_index": content.number}
        log.say("response.content_part.added", {**fields, "part": content.object("")})
        self._part_place = orjson.dumps(fields)[1:-1]

    def add_text(
        self, log: EventLog, text: str, logprobs: tuple[TokenLogprob, ...], token_ids: tuple[int, ...]
    ) -> None:
        content = self._content()
        content.pieces.append(text)
        if not logprobs and not token_ids:
            log.say_text(self._part_place, text)
            return
        told: dict[str, Any] = {"delta": text, "logprobs": logprob_objects(logprobs)}
        content.logprobs += told["logprobs"]
        if token_ids:
            told["token_ids"] = token_ids
        log.say_raw("response.output_text.delta", b"%b,%b" % (self._part_place, orjson.dumps(told)[1:]))

    def add_refusal(self, log: EventLog, text: str) -> None:
        self._content().pieces.append(text)
        log.say_delta("response.refusal.delta", self._part_place, text)

    def annotate(self, log: EventLog, annotation: bytes) -> None:
        content = self._content()
        note = orjson.Fragment(annotation)
        place = {"content_index": content.number, "annotation_index": len(content.annotations)}
        content.annotations.append(note)
        log.say("response.output_text.annotation.added", {**self._place.fields, **place, "annotation": note})

    def cite(self, log: EventLog, citation: Citation) -> None:
        """One of the whole text is told when that ends."""
        if citation.end is None:
            self._content().of_whole.append(citation)
        else:
            self._tell(log, citation, citation.end)

    def _tell(self, log: EventLog, citation: Citation, length: int) -> None:
        annotation = responses_annotation(citation, *citation.span(length))
        if annotation is not None:
            self.annotate(log, orjson.dumps(annotation))

    def end_part(self, log: EventLog) -> None:
        content = self._open
        if content is None:
            return
        text = "".join(content.pieces)
        for citation in content.of_whole:
            self._tell(log, citation, len(text))
        self._open = None
        fields = {**self._place.fields, "content_index": content.number}
        if content.kind == "refusal":
            log.say("response.refusal.done", {**fields, "refusal": text})
        else:
            log.say("response.output_text.done", {**fields, "text": text, "logprobs": content.logprobs})
        part = content.object(text)
        self._closed.append(part)
        log.say("response.content_part.done", {**fields, "part": part})

    def finish(self, log: EventLog, status: str) -> None:
        self.end_part(log)

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        content = list(self._closed)
        if self._open is not None:
            content.append(self._open.object("".join(self._open.pieces)))
        found: dict[str, Any] = {
            "id": self._place.id,
            "type": MESSAGE,
            "status": status,
            "role": "assistant",
            "content": content,
        }
        add_own_fields(found, self._data)
        return orjson.dumps(found)

    def _content(self) -> _Content:
        assert self._open is not None
        return self._open
