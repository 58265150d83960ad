"""Server-sent events: bytes to the data of each event, incremental and cut-independent. No sockets.

Source: the WHATWG HTML standard, section "Server-sent events" (2026-11). Lines end in LF, CRLF or CR; a BOM at the
start is skipped; comments and unknown fields are ignored; several data lines join with LF. The event name is not given:
every dialect here repeats it inside the data.
"""

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["MAX_EVENT_BYTES", "SseDecoder"]

MAX_EVENT_BYTES = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Collects bytes; `feed` gives the data of each event that became whole."""

    __slots__ = ("_held", "_held_bytes", "_max_bytes", "_started")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._held: list[bytes] = []  # what follows the last whole event, in the pieces it came in
        self._held_bytes = 0
        self._max_bytes = max_event_bytes
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Raises BadUpstreamResponse when one event outgrows the limit."""
        held = self._held
        if b"\n" not in data and b"\r" not in data and self._started and not self._ends_in_cr():
            self._hold(data)
            return []
        if held:
            held.append(data)
            data = b"".join(held)
        if not self._started:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._held, self._held_bytes = [data], len(data)
                return []
            self._started = True
            data = data.removeprefix(_BOM)
        tail = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # perhaps the first half of CRLF
                data, tail = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        rest = blocks.pop() + tail
        self._held, self._held_bytes = [], 0
        if rest:
            self._hold(rest)
        if _are_plain(data, blocks, rest):
            return [block[6:] for block in blocks]
        return [found for found in map(_data_of, blocks) if found is not None]

    def close(self) -> list[bytes]:
        """The data of an unterminated last event, if there is one."""
        rest = b"".join(self._held).replace(b"\r", b"\n").strip(b"\n")
        self._held, self._held_bytes = [], 0
        data = _data_of(rest) if rest else None
        return [] if data is None else [data]

    def _ends_in_cr(self) -> bool:
        return bool(self._held) and self._held[-1].endswith(b"\r")

    def _hold(self, data: bytes) -> None:
        self._held_bytes += len(data)
        if self._held_bytes > self._max_bytes:
            raise BadUpstreamResponse(f"an event of the stream is longer than {self._max_bytes} bytes")
        self._held.append(data)


def _are_plain(data: bytes, blocks: list[bytes], rest: bytes) -> bool:
    """Whether every block is one line `data: ...`, as nearly all are; told by counting, not block by block."""
    return (
        data.startswith(b"data: ")
        and data.count(b"\n\ndata: ") == len(blocks) - 1 + rest.startswith(b"data: ")
        and data.count(b"\n") - rest.count(b"\n") == 2 * len(blocks)
    )


def _data_of(block: bytes) -> bytes | None:
    """The joined data lines of one event; None where it has none (a comment, an event without data)."""
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
