"""Tool calls out of chat deltas: fragments become calls with a final id and name (law 6).

Upstreams differ: ids repeated, empty or late, names that come late, indexes missing, or the same index for different
calls. Null, "" and absent are the same here.
"""

from collections.abc import Callable, Mapping

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import Event, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from adapters.canonical.messages import ProviderData
from adapters.openai.vocabulary import CHAT, CUSTOM, FUNCTION

__all__ = ["CallDelta", "Calls", "FunctionDelta"]

_decode_text = Decoder(str).decode


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

    __slots__ = ("data", "has_arguments", "id", "kind", "name", "part")

    def __init__(self) -> None:
        self.part: int | None = None
        self.id = ""
        self.name = ""
        self.kind = FUNCTION
        self.data: ProviderData | None = None
        self.has_arguments = False


class Calls:
    """The calls of one choice. `new_id` mints an id where the upstream gives none; `only_first` drops later calls;
    `names` are the client's names of tools by those that were sent, where they differ."""

    __slots__ = ("_by_index", "_choice", "_held", "_ids", "_names", "_new_id", "_only_first", "_order")

    def __init__(
        self, choice: int, new_id: Callable[[], str], *, only_first: bool, names: Mapping[str, str] = _SAME_NAMES
    ) -> None:
        self._names = names
        self._choice = choice
        self._new_id = new_id
        self._only_first = only_first
        self._by_index: dict[int, _Call] = {}
        self._order: list[_Call] = []
        self._held: dict[_Call, str] = {}  # argument text of calls that have no name yet
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._order)

    def feed(self, delta: CallDelta, next_part: Callable[[], int], out: list[Event]) -> None:
        name, text = _inner(delta)
        call = self._find(delta, name)
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
        if text:
            call.has_arguments = True
            out.append(ToolArgumentsDelta(self._choice, call.part or 0, text))

    def finish(self, next_part: Callable[[], int], out: list[Event], *, cut: bool) -> None:
        """Ends every call. A function call without any argument text gets an empty object, unless the turn was cut."""
        for call in self._order[:1] if self._only_first else self._order:
            if call.part is None:
                if not call.name:
                    raise BadUpstreamResponse("the upstream sent a tool call without a name")
                self._start(call, next_part, out)
            part = call.part or 0
            if not call.has_arguments and call.kind != CUSTOM and not cut:
                out.append(ToolArgumentsDelta(self._choice, part, "{}"))
            out.append(ToolCallFinished(self._choice, part))

    def _find(self, delta: CallDelta, name: str | None) -> _Call:
        """The call that a fragment continues: by index, else by id, else the last; or a new one."""
        known: _Call | None = None
        if delta.index is not None:
            known = self._by_index.get(delta.index)
        elif delta.id:
            known = next((call for call in self._order if call.id == delta.id), None)
        elif self._order and not name:
            known = self._order[-1]
        if known is not None and not _is_another(delta, name, known):
            return known
        call = _Call()
        self._order.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        return call

    def _start(self, call: _Call, next_part: Callable[[], int], out: list[Event]) -> None:
        shown = call.id
        if not shown or shown in self._ids:
            shown = self._new_id()
        self._ids.add(shown)
        call.part = next_part()
        name = self._names.get(call.name, call.name)
        out.append(ToolCallStarted(self._choice, call.part, shown, name, call.kind, call.data))
        held = self._held.pop(call, "")
        if held:
            call.has_arguments = True
            out.append(ToolArgumentsDelta(self._choice, call.part, held))


def _is_another(delta: CallDelta, name: str | None, known: _Call) -> bool:
    """Whether a fragment with the index of a known call begins another: by its id, or by its name where ids lack."""
    if delta.id and known.id:
        return delta.id != known.id
    return bool(name and known.name and name != known.name)


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
