"""Server-sent events: bytes to the data of each event, incremental and cut-independent. No sockets.

Source: the WHATWG HTML standard, section "Server-sent events" (2026-11). Lines end in LF, CRLF or CR; a BOM at the
start is skipped; comments and unknown fields are ignored; several data lines join with LF. The event name is not given:
every dialect here repeats it inside the data.
"""

import msgspec

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["MAX_EVENT_BYTES", "SseDecoder", "on_one_line"]

MAX_EVENT_BYTES = 32 * 1024 * 1024
_NAMED = b"event: "
_BOM = b"\xef\xbb\xbf"


def on_one_line(data: bytes) -> bytes:
    """The same JSON without line breaks, which would end a frame: raw pieces of a body may stand on several lines."""
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


class SseDecoder:
    """Collects bytes; `feed` gives the data of each event that became whole. An event without data is none."""

    __slots__ = ("_held", "_held_bytes", "_max_bytes", "_prefix", "_started")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._held: list[bytes] = []  # what follows the last whole event, in the pieces it came in; lines end in LF
        self._held_bytes = 0
        self._max_bytes = max_event_bytes
        self._prefix = b""  # put before the next bytes: a part of the BOM, or a CR that may be half of CRLF
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Raises BadUpstreamResponse when more comes for an event that outgrew the limit."""
        if self._started and not self._held and not self._prefix:  # an event begins
            plain = data.replace(b"\r\n", b"\n") if b"\r" in data else data
            if plain.endswith(b"\n\n") and b"\r" not in plain:  # only whole ones: what nearly every read brings
                return _data_in(plain)
        if self._held_bytes > self._max_bytes:
            raise BadUpstreamResponse(f"an event of the stream is longer than {self._max_bytes} bytes")
        if self._prefix:
            data = self._prefix + data
            self._prefix = b""
        if not self._started:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._prefix = data
                return []
            self._started = True
            data = data.removeprefix(_BOM)
        if b"\r" in data:
            if data.endswith(b"\r"):
                data, self._prefix = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        held = self._held
        if b"\n\n" not in data and not (held and data.startswith(b"\n") and held[-1].endswith(b"\n")):
            self._hold(data)
            return []
        if held:
            held.append(data)
            data = b"".join(held)
            self._held, self._held_bytes = [], 0
        end = data.rfind(b"\n\n") + 2
        self._hold(data[end:])
        return _data_in(data[:end])

    def close(self) -> list[bytes]:
        """The data of an unterminated last event, if there is one."""
        found = _data_of(b"".join(self._held))
        self._held, self._held_bytes, self._prefix = [], 0, b""
        return [found] if found else []

    def _hold(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_bytes += len(data)


def _data_in(events: bytes) -> list[bytes]:
    """The data of whole events. Nearly all are one line `data: ...`, which counting tells without a look at each, or
    that line behind one with a name."""
    if events.startswith(b"data: "):
        found = events[6:-2].split(b"\n\ndata: ")
        if events.count(b"\n") == 2 * len(found):
            return found if all(found) else [data for data in found if data]
    elif events.startswith(_NAMED):
        lines = events.split(b"\n")
        found = [line[6:] for line in lines[1::3] if line.startswith(b"data: ")]
        if len(lines) == 3 * len(found) + 1 and not any(lines[2::3]) and events.count(b"\n" + _NAMED) == len(found) - 1:
            return found if all(found) else [data for data in found if data]
    return [data for data in map(_data_of, events.split(b"\n\n")) if data]


def _data_of(block: bytes) -> bytes:
    """The joined data lines of one event; empty where it has none (a comment, an event without data)."""
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines)
