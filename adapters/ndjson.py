"""Newline-delimited JSON: bytes to the lines of a stream, incremental and cut-independent. No sockets."""

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["MAX_LINE_BYTES", "LineDecoder"]

MAX_LINE_BYTES = 32 * 1024 * 1024


class LineDecoder:
    """Collects bytes; `feed` gives each line that became whole, without its end. Blank lines say nothing."""

    __slots__ = ("_held", "_held_bytes", "_max_bytes")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._max_bytes = max_line_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raises BadUpstreamResponse when more comes for a line that outgrew the limit."""
        if self._held_bytes > self._max_bytes:
            raise BadUpstreamResponse(f"a line of the stream is longer than {self._max_bytes} bytes")
        lines = data.split(b"\n")
        last = lines.pop()
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held, self._held_bytes = [], 0
        if last:
            self._held.append(last)
            self._held_bytes += len(last)
        return [line for line in lines if line and not line.isspace()]

    def close(self) -> list[bytes]:
        """An unterminated last line, if there is one."""
        line = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return [line] if line.strip() else []
