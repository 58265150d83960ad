"""Tool calls out of chat deltas: fragments become calls with a final id and name (law 6).

Upstreams differ: ids repeated or empty on later fragments, names that come late, indexes missing, or the same index for
different calls. Null, "" and absent are the same here.
"""

from collections.abc import Callable

from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import Event, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from adapters.openai.vocabulary import CUSTOM

__all__ = ["CallDelta", "Calls"]

_decode_text = Decoder(str).decode


class FunctionDelta(Struct):
    name: str | None = None
    arguments: Raw = Raw()


class CustomDelta(Struct):
    name: str | None = None
    input: str | None = None


class CallDelta(Struct):
    """One element of `delta.tool_calls` or `message.tool_calls`."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None
    extra_content: Raw = Raw()  # Gemini's own OpenAI surface keeps signatures here


class _Call:
    __slots__ = ("arguments_seen", "fields", "held", "id", "kind", "name", "part", "started")

    def __init__(self, part: int) -> None:
        self.part = part
        self.id = ""
        self.name = ""
        self.kind = "function"
        self.held: list[str] = []
        self.fields: dict[str, bytes] = {}
        self.started = False
        self.arguments_seen = False


class Calls:
    """The calls of one choice. `new_id` mints an id where the upstream gives none; `only_first` drops later calls."""

    __slots__ = ("_by_index", "_choice", "_new_id", "_only_first", "_order")

    def __init__(self, choice: int, new_id: Callable[[], str], *, only_first: bool) -> None:
        self._choice = choice
        self._new_id = new_id
        self._only_first = only_first
        self._by_index: dict[int, _Call] = {}
        self._order: list[_Call] = []

    def __len__(self) -> int:
        return len(self._order)

    def feed(self, delta: CallDelta, next_part: Callable[[], int], out: list[Event]) -> None:
        call = self._find(delta, next_part)
        if self._only_first and call is not self._order[0]:
            return
        inner_name, text = _inner(delta)
        if not call.started:
            call.id = delta.id or call.id
            call.name = inner_name or call.name
            if delta.type == CUSTOM or delta.custom is not None:
                call.kind = CUSTOM
            if bytes(delta.extra_content) not in (b"", b"null"):
                call.fields["extra_content"] = bytes(delta.extra_content)
            if call.name:
                self._start(call, out)
        if text:
            if call.started:
                call.arguments_seen = True
                out.append(ToolArgumentsDelta(self._choice, call.part, text))
            else:
                call.held.append(text)

    def finish(self, out: list[Event]) -> None:
        """Ends every call. A function call without any argument text gets an empty object."""
        for call in self._order[:1] if self._only_first else self._order:
            if not call.started:
                raise BadUpstreamResponse("the upstream sent a tool call without a name")
            if not call.arguments_seen and call.kind != CUSTOM:
                out.append(ToolArgumentsDelta(self._choice, call.part, "{}"))
            out.append(ToolCallFinished(self._choice, call.part))

    def _find(self, delta: CallDelta, next_part: Callable[[], int]) -> _Call:
        """The call that a fragment continues: by index, unless another id says that a new call begins."""
        index = delta.index
        if index is not None:
            known = self._by_index.get(index)
            if known is not None and not (delta.id and known.id and delta.id != known.id):
                return known
        elif not delta.id:
            if self._order and (delta.function is None or not delta.function.name):
                return self._order[-1]
        else:
            for call in self._order:
                if call.id == delta.id:
                    return call
        call = _Call(next_part())
        self._order.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _start(self, call: _Call, out: list[Event]) -> None:
        taken = {other.id for other in self._order if other is not call}
        if not call.id or call.id in taken:
            call.id = self._new_id()
        call.started = True
        out.append(ToolCallStarted(self._choice, call.part, call.id, call.name, call.kind, call.fields or None))
        if call.held:
            call.arguments_seen = True
            out.append(ToolArgumentsDelta(self._choice, call.part, "".join(call.held)))
            call.held = []


def _inner(delta: CallDelta) -> tuple[str | None, str]:
    """The name and argument text of a fragment. Some hosts send arguments as an object: its JSON text is taken."""
    if delta.custom is not None:
        return delta.custom.name, delta.custom.input or ""
    if delta.function is None:
        return None, ""
    raw = bytes(delta.function.arguments)
    if raw in (b"", b"null"):
        return delta.function.name, ""
    return delta.function.name, _decode_text(raw) if raw.startswith(b'"') else raw.decode()
