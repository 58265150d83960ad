"""Tool calls out of chat deltas: fragments become calls with a final id and name (law 6).

Upstreams differ: ids repeated, empty, late or new on each fragment, names that come late, indexes missing, or the same
index, or the same id, for different calls; some begin arguments with an empty object that is none. Null, "" and absent
are the same here.
"""

from collections.abc import Callable, Mapping

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from adapters.call_ids import OwnIds
from adapters.call_objects import is_object
from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import Event, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from adapters.canonical.messages import ProviderData
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.openai.vocabulary import CHAT

__all__ = ["CallDelta", "Calls", "FunctionDelta"]

_decode_text = Decoder(str).decode
_EMPTY_OBJECT = "{}"
_SAME_NAMES: Mapping[str, str] = {}


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
    """One call. `part` is None until it starts; `id` is the upstream's, and ours only where it had none by then."""

    __slots__ = ("data", "id", "kind", "name", "part", "texts")

    def __init__(self) -> None:
        self.part: int | None = None
        self.id = ""
        self.name = ""
        self.kind = FUNCTION
        self.data: ProviderData | None = None
        self.texts: list[str] = []
        """Of the arguments, as they came."""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def is_whole(self) -> bool:
        return is_object(self.text)


class Calls:
    """The calls of one choice. `only_first` drops later ones; `names` are the client's names of tools by those that
    were sent, where they differ."""

    __slots__ = ("_by_index", "_choice", "_held", "_ids", "_names", "_only_first", "_order")

    def __init__(
        self,
        choice: int,
        ids: OwnIds,
        *,
        only_first: bool,
        names: Mapping[str, str] = _SAME_NAMES,
    ) -> None:
        self._names = names
        self._choice = choice
        self._ids = ids
        self._only_first = only_first
        self._by_index: dict[int, _Call] = {}
        self._order: list[_Call] = []
        self._held: dict[_Call, str] = {}
        """Argument text of calls that have no name yet, and an empty object that may be none."""

    def __len__(self) -> int:
        return len(self._order)

    def feed(self, delta: CallDelta, next_part: Callable[[], int], out: list[Event]) -> None:
        name, text = _inner(delta)
        call = self._find(delta, name, text)
        if self._only_first and call is not self._order[0]:
            return
        if call.part is None:
            call.id = delta.id or call.id
            call.name = name or call.name
            if delta.type == CUSTOM or delta.custom is not None:
                call.kind = CUSTOM
            extra = bytes(delta.extra_content)
            if extra not in (b"", b"null"):
                call.data = ProviderData(CHAT, {"extra_content": extra})
            if not (call.name and (call.id or text)):  # a name alone waits for its id until arguments come
                self._held[call] = self._held.get(call, "") + text
                return
            self._start(call, next_part, out)
        elif _repeats(delta, name, text, call):
            return
        if text:
            self._add(call, text, out)

    def _add(self, call: _Call, text: str, out: list[Event]) -> None:
        if call in self._held:
            held = self._held.pop(call)
            call.texts.clear()
            text = text if text.lstrip().startswith("{") else held + text
        elif text == _EMPTY_OBJECT and not call.texts and call.kind != CUSTOM:
            self._held[call] = text
            call.texts.append(text)
            return
        call.texts.append(text)
        out.append(ToolArgumentsDelta(self._choice, call.part or 0, text))

    def _release(self, call: _Call, out: list[Event]) -> None:
        """Says the empty object that a call was held at, which turned out to be all of its arguments."""
        held = self._held.pop(call, "")
        if held:
            out.append(ToolArgumentsDelta(self._choice, call.part or 0, held))

    def finish(self, next_part: Callable[[], int], out: list[Event], *, cut: bool) -> None:
        """Ends every call. A function call without any argument text gets an empty object, unless the turn was cut."""
        for call in self._order[:1] if self._only_first else self._order:
            if call.part is None:
                if not call.name:
                    raise BadUpstreamResponse("the upstream sent a tool call without a name")
                self._start(call, next_part, out)
            part = call.part or 0
            self._release(call, out)
            if not (call.texts or call.kind == CUSTOM or cut):
                out.append(ToolArgumentsDelta(self._choice, part, _EMPTY_OBJECT))
            out.append(ToolCallFinished(self._choice, part))

    def _find(self, delta: CallDelta, name: str | None, text: str) -> _Call:
        """The call that a fragment continues: by index, else by id, else the last; or a new one."""
        known: _Call | None = None
        if delta.index is not None:
            known = self._by_index.get(delta.index)
        elif delta.id:
            known = next((call for call in self._order if call.id == delta.id), None)
        elif self._order and not name:
            known = self._order[-1]
        if known is not None and not _is_another(delta, name, text, known):
            return known
        call = _Call()
        self._order.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        return call

    def _start(self, call: _Call, next_part: Callable[[], int], out: list[Event]) -> None:
        for other in [*self._held]:
            if other.part is not None:
                self._release(other, out)
        shown = self._ids.of(call.id)
        call.part = next_part()
        name = self._names.get(call.name, call.name)
        out.append(ToolCallStarted(self._choice, call.part, shown, name, call.kind, call.data))
        held = self._held.pop(call, "")
        if held:
            self._add(call, held, out)


def _is_another(delta: CallDelta, name: str | None, text: str, known: _Call) -> bool:
    """Whether a fragment with the index, or the id, of a known call begins another.

    One without a name goes on with a call that has one, whatever its id. With a name it is another by its id, or by its
    name where ids lack; also where these are the same, when arguments follow that are whole.
    """
    ids_differ = bool(delta.id and known.id and delta.id != known.id)
    if not (name and known.name):
        return ids_differ and not known.name
    same_id = bool(delta.id) and delta.id == known.id
    if name != known.name and not same_id:
        return True
    if ids_differ:
        return not known.texts or known.is_whole
    goes_on = name == known.name and (not text or _repeats(delta, name, text, known))
    return not goes_on and bool(known.texts) and known.is_whole


def _repeats(delta: CallDelta, name: str | None, text: str, known: _Call) -> bool:
    """Whether a fragment says a whole call once more, as some hosts do at the end."""
    return bool(text and name) and delta.id == known.id and text == known.text and known.is_whole


def _inner(delta: CallDelta) -> tuple[str | None, str]:
    """The name and argument text of a fragment. Some hosts send arguments as an object: its JSON text is taken."""
    if delta.custom is not None:
        return delta.custom.name, delta.custom.input or ""
    if delta.function is None:
        return None, ""
    raw = bytes(delta.function.arguments)
    if raw in (b"", b"null"):
        return delta.function.name, ""
    try:
        return delta.function.name, _decode_text(raw) if raw.startswith(b'"') else raw.decode()
    except (DecodeError, UnicodeDecodeError) as error:
        raise BadUpstreamResponse("the upstream sent tool arguments that are not valid JSON text") from error
