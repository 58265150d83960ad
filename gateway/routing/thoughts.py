"""What models thought before they called tools, for clients that do not give it back.

Some upstreams want the proof of a turn's reasoning (signatures, encrypted blocks) back with the results of its calls,
and many chat clients drop it. It is kept for a while by the id of each call, and put back where a client's turn came
back without. Bounded by calls, bytes and time. Knows no dialect.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from adapters.canonical.events import Event, ReasoningDelta, ReasoningFinished, ToolCallStarted
from adapters.canonical.messages import ASSISTANT, Message, Part, ProviderData, Reasoning, ToolCall
from adapters.canonical.request import Request

__all__ = ["KeptThoughts", "Watch"]

MAX_CALLS = 8192
MAX_BYTES = 64 * 2**20
LIFE_S = 3600.0

_Turn = tuple[tuple[int, int, Reasoning], ...]
"""The signed thoughts of one turn, each with its place among the turn's parts and the number of calls before it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    turn: _Turn
    until: float
    size: int


class KeptThoughts:
    """`clock` gives seconds of any origin. An `owner` gets back what it was answered itself."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        max_calls: int = MAX_CALLS,
        max_bytes: int = MAX_BYTES,
        life_s: float = LIFE_S,
    ) -> None:
        self._clock = clock
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._life_s = life_s
        self._entries: OrderedDict[tuple[str, str, str], _Entry] = OrderedDict()
        self._bytes = 0

    def watch(self, request: Request, owner: str) -> "Watch | None":
        """What sees the events of the answer; None where it can hold no calls."""
        return Watch(self, owner) if request.tools else None

    def keep(self, owner: str, calls: Iterable[tuple[str, str]], turn: _Turn) -> None:
        """`calls` are ids and names. The oldest entries leave where there is no room."""
        size = sum([_size_of(thought) for _, _, thought in turn])
        if size > self._max_bytes:
            return
        for call_id, name in calls:
            self._drop((owner, call_id, name))
            self._entries[owner, call_id, name] = _Entry(turn, self._clock() + self._life_s, size)
            self._bytes += size
        while len(self._entries) > self._max_calls or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def restored(self, request: Request, owner: str) -> Request:
        """The request with the thoughts that belong before its calls, where its turns have none."""
        if not self._entries or request.messages is None:
            return request
        found: list[Message] | None = None
        before: _Turn | None = None  # of the message before this one
        for place, message in enumerate(request.messages):
            turn = self._missing_in(message, owner)
            if turn is not None and turn is not before:  # some clients write each call as a message of its own
                found = found or list(request.messages)
                found[place] = replace(message, parts=_with_thoughts(message.parts, turn))
            before = turn
        return request if found is None else replace(request, messages=tuple(found))

    def _missing_in(self, message: Message, owner: str) -> _Turn | None:
        if message.role != ASSISTANT:
            return None
        call: ToolCall | None = None
        for part in message.parts:
            if type(part) is Reasoning and (part.signature is not None or part.encrypted is not None):
                return None
            if type(part) is ToolCall:
                if part.provider_data is not None:  # the proof may have come back with the call
                    return None
                call = call or part
        if call is None:
            return None
        key = (owner, call.id, call.name)
        entry = self._entries.get(key)
        if entry is not None and entry.until < self._clock():
            self._drop(key)
            return None
        return None if entry is None else entry.turn

    def _drop(self, key: tuple[str, str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


@dataclass(slots=True)
class _Thought:
    text: list[str] = field(default_factory=list)
    summary: list[list[str]] = field(default_factory=list)
    signature: str | None = None
    encrypted: str | None = None
    origin: str | None = None
    provider_data: ProviderData | None = None

    @property
    def is_signed(self) -> bool:
        return self.signature is not None or self.encrypted is not None


class Watch:
    """Sees the batches of one answer; `close` keeps what it saw, once the answer is whole."""

    __slots__ = ("_calls", "_owner", "_store", "_thoughts")

    def __init__(self, store: KeptThoughts, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._thoughts: dict[int, dict[int, _Thought]] = {}
        self._calls: dict[int, dict[int, tuple[str, str]]] = {}

    def see(self, batch: Sequence[Event]) -> None:
        for event in batch:
            kind = type(event)
            if kind is ReasoningDelta or kind is ReasoningFinished or kind is ToolCallStarted:
                self._see(event)

    def close(self) -> None:
        for choice, calls in self._calls.items():
            turn = _turn_of(self._thoughts.get(choice, {}), calls)
            if turn:
                self._store.keep(self._owner, calls.values(), turn)

    def _see(self, event: Event) -> None:
        match event:
            case ToolCallStarted():
                self._calls.setdefault(event.choice, {})[event.part] = (event.id, event.name)
            case ReasoningDelta():
                thought = self._thought(event.choice, event.part)
                if event.summary:
                    thought.summary += [[] for _ in range(event.piece + 1 - len(thought.summary))]
                    thought.summary[event.piece].append(event.text)
                else:
                    thought.text.append(event.text)
            case ReasoningFinished():
                thought = self._thought(event.choice, event.part)
                thought.signature = event.signature or thought.signature
                thought.encrypted = event.encrypted or thought.encrypted
                thought.origin = event.origin or thought.origin
                thought.provider_data = event.provider_data or thought.provider_data

    def _thought(self, choice: int, part: int) -> _Thought:
        return self._thoughts.setdefault(choice, {}).setdefault(part, _Thought())


def _turn_of(thoughts: dict[int, _Thought], calls: Iterable[int]) -> _Turn:
    """Thoughts that nobody signed do not come back, and do not count."""
    found: list[tuple[int, int, Reasoning]] = []
    unsigned = 0
    for part, thought in sorted(thoughts.items()):
        if not thought.is_signed:
            unsigned += 1
            continue
        reasoning = Reasoning(
            text="".join(thought.text),
            summary=tuple(["".join(pieces) for pieces in thought.summary]),
            signature=thought.signature,
            encrypted=thought.encrypted,
            origin=thought.origin,
            provider_data=thought.provider_data,
        )
        found.append((part - unsigned, sum([call < part for call in calls]), reasoning))
    return tuple(found)


def _with_thoughts(parts: tuple[Part, ...], turn: _Turn) -> tuple[Part, ...]:
    """The parts as they were answered; thoughts that came back as mere text give way."""
    found = [part for part in parts if type(part) is not Reasoning]
    for place, calls_before, thought in turn:
        calls = [index for index, part in enumerate(found) if type(part) is ToolCall]
        found.insert(min([place, *calls[calls_before : calls_before + 1]]), thought)
    return tuple(found)


def _size_of(thought: Reasoning) -> int:
    texts = (thought.text, *thought.summary, thought.signature or "", thought.encrypted or "")
    data = {} if thought.provider_data is None else thought.provider_data.fields
    return 256 + sum(map(len, texts)) + sum(map(len, data.values()))
