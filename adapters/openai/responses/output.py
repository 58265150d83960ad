"""The output of one answer: a provider's events become items, in the order in which they begin.

A message or a thought ends when another item begins; calls stay open beside each other until each is finished, because
their arguments may come interleaved. A part that goes on after its item ended goes on in an item of its own. A call
that was finished is told as such with what comes next: only then it is known whether the answer was cut in it.
"""

from typing import Any, assert_never

from adapters.canonical.events import (
    AnnotationAdded,
    HostedToolEvent,
    MediaDelta,
    PartEvent,
    PartReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import Request
from adapters.canonical.tool_kinds import CUSTOM
from adapters.openai.annotations import flat
from adapters.openai.responses.content import named_namespace
from adapters.openai.responses.event_log import EventLog
from adapters.openai.responses.message_item import MessageItem
from adapters.openai.responses.output_items import (
    CallItem,
    HostedItem,
    ImageItem,
    Item,
    ThoughtItem,
)
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.vocabulary import CUSTOM_CALL, FUNCTION_CALL, ITEM_ADDED, NEW_ITEM, WIRE_EVENT
from adapters.openai.responses.wire_events import Form
from adapters.openai.tools import bare_name
from adapters.openai.vocabulary import CHAT, RESPONSES

__all__ = ["Output", "item_id"]

_RESPONSE = "resp_"
_INDEX_DIGITS = 4


def item_id(prefix: str, response_id: str, index: int) -> str:
    """The id of the output item in this place: it follows from the response's own."""
    return f"{prefix}_{response_id.removeprefix(_RESPONSE)}{index:0{_INDEX_DIGITS}x}"


class Output:
    def __init__(self, request: Request, response_id: str, log: EventLog, form: Form, seal: ClientSeal) -> None:
        self._log = log
        self._response_id = response_id
        self._form = form
        self._seal = seal
        self._shows_seal = request.encrypted_reasoning
        self._shows_summary = request.reasoning is not None and request.reasoning.summary is not None
        self._namespaces = {tool.name: tool.namespace.name for tool in request.tools or () if tool.namespace}
        self._items: list[Item] = []
        self._done: dict[int, str] = {}
        """How each item ended, by its place."""
        self._message: MessageItem | None = None
        self._thought: ThoughtItem | None = None
        self._part = -1
        """What the open message or thought says now."""
        self._is_text = False
        self._calls: dict[int, CallItem] = {}
        self._hosted: dict[int, HostedItem] = {}
        self._images: dict[int, ImageItem] = {}
        self._ended: CallItem | None = None
        """A call that was finished and is not yet told as such."""
        self._reported: dict[int, ProviderData] = {}

    def feed(self, event: PartEvent) -> None:
        if type(event) is TextDelta and event.part == self._part and self._is_text and self._message is not None:
            if event.text or event.logprobs or event.token_ids:
                self._message.add_text(self._log, event.text, event.logprobs, event.token_ids)
            return
        if self._ended is not None:
            self._end(self._ended, "completed")
            self._ended = None
        self._feed_other(event)

    def finish(self, *, cut: bool) -> None:
        """Ends what is open. `cut`: the last item is not whole."""
        self._ended = None
        open_items = [item for item in self._items if item.index not in self._done]
        for item in open_items:
            is_cut = cut and item is self._items[-1]
            self._end(item, "incomplete" if is_cut else "completed")

    def render(self, unfinished: str, *, keeps: bool = False) -> list[bytes]:
        """The items now; those that are open have the status `unfinished`. `keeps`: as a store keeps them."""
        return [item.render(self._done.get(item.index, unfinished), keeps=keeps) for item in self._items]

    def _feed_other(self, event: PartEvent) -> None:
        match event:
            case ToolArgumentsDelta():
                if event.text:
                    self._calls[event.part].add_arguments(self._log, event.text)
            case ReasoningDelta():
                if event.text or event.logprobs or event.token_ids:
                    self._think(event)
            case TextDelta():
                if event.text or event.logprobs or event.token_ids:
                    message = self._content("output_text", event.part)
                    message.add_text(self._log, event.text, event.logprobs, event.token_ids)
            case RefusalDelta():
                if event.text:
                    self._content("refusal", event.part).add_refusal(self._log, event.text)
            case PartReported():
                if event.provider_data.origin == RESPONSES:
                    self._reported[event.part] = event.provider_data
            case AnnotationAdded():
                self._annotate(event)
            case ReasoningFinished():
                if event.signature or event.encrypted or event.provider_data:
                    self._open_thought(event.part).prove(event)
            case ToolCallStarted():
                self._calls[event.part] = call = self._new_call(event)
                self._begin(call)
            case ToolCallFinished():
                self._ended = self._calls.pop(event.part, None)
            case HostedToolEvent():
                if event.origin == RESPONSES:
                    self._feed_hosted(event)
            case MediaDelta():
                if event.media == "image":
                    self._feed_image(event)
            case _:
                assert_never(event)

    def _annotate(self, event: AnnotationAdded) -> None:
        """As it came, where it is of OpenAI's dialects, else as what it means."""
        own = event.annotation if event.origin == RESPONSES else None
        if event.origin == CHAT and event.annotation:
            own = flat(event.annotation)
        if own:
            self._content("output_text", event.part).annotate(self._log, own)
        elif event.origin != RESPONSES:
            for citation in event.citations:
                if citation.url or citation.file_id:
                    self._content("output_text", event.part).cite(self._log, citation)

    def _content(self, kind: str, part: int) -> MessageItem:
        """The message with this content part open."""
        is_text = kind == "output_text"
        message = self._message
        if message is not None and part == self._part and self._is_text == is_text:
            return message
        reported = self._reported.pop(part, None)
        if message is None or (reported is not None and NEW_ITEM in reported.fields):
            message = MessageItem(self._new_id("msg"), len(self._items), _without_mark(reported))
            self._begin(message)
            self._message = message
        message.begin_part(self._log, kind)
        self._part, self._is_text = part, is_text
        return message

    def _think(self, event: ReasoningDelta) -> None:
        thought = self._open_thought(event.part)
        if event.summary:
            thought.add_summary(self._log, event.piece, event.text)
        elif self._shows_summary:
            thought.add_text_as_summary(self._log, event.text)
        else:
            thought.add_text(self._log, event.text, event.logprobs, event.token_ids)

    def _open_thought(self, part: int) -> ThoughtItem:
        if self._thought is None or part != self._part:
            thought = ThoughtItem(
                self._new_id("rs"), len(self._items), self._form, self._seal, shows_seal=self._shows_seal
            )
            self._begin(thought)
            self._thought, self._part = thought, part
        return self._thought

    def _new_call(self, event: ToolCallStarted) -> CallItem:
        custom = event.kind == CUSTOM
        call: dict[str, Any] = {"type": CUSTOM_CALL if custom else FUNCTION_CALL, "call_id": event.id}
        namespace = self._namespaces.get(event.name) or named_namespace(event.provider_data)
        if namespace is None:
            call["name"] = event.name
        else:
            call.update(name=bare_name(namespace, event.name), namespace=namespace)
        return CallItem(self._new_id("ctc" if custom else "fc"), len(self._items), call, event.provider_data)

    def _feed_hosted(self, event: HostedToolEvent) -> None:
        item = self._hosted.get(event.part)
        if item is None:
            if event.type.startswith(WIRE_EVENT) and event.type != ITEM_ADDED:
                return  # of an item that ended
            item = self._hosted[event.part] = HostedItem(len(self._items), event.raw)
            self._begin(item)
        elif event.type.startswith(WIRE_EVENT):
            item.pass_on(self._log, event.type, event.raw)
        if not event.type.startswith(WIRE_EVENT):
            item.settle(event.raw)
            del self._hosted[event.part]
            self._end(item, "completed")

    def _feed_image(self, event: MediaDelta) -> None:
        image = self._images.get(event.part)
        if image is None:
            image = ImageItem(self._new_id("ig"), len(self._items))
            self._begin(image)
            image.begin(self._log)
            self._images[event.part] = image
        image.add_data(event.data, event.format)

    def _new_id(self, prefix: str) -> str:
        return item_id(prefix, self._response_id, len(self._items))

    def _begin(self, item: Item) -> None:
        """An item begins: what was said or thought before it is whole."""
        for one in (self._message, self._thought):
            if one is not None:
                self._end(one, "completed")
        self._message = self._thought = None
        self._part = -1
        for image in self._images.values():
            self._end(image, "completed")
        self._images.clear()
        self._items.append(item)
        self._log.begin_item(item)

    def _end(self, item: Item, status: str) -> None:
        self._done[item.index] = status
        item.finish(self._log, status)
        self._log.end_item(item, status)


def _without_mark(data: ProviderData | None) -> ProviderData | None:
    if data is None:
        return None
    return ProviderData(data.origin, {name: raw for name, raw in data.fields.items() if name != NEW_ITEM})
