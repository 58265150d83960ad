"""Log lines on stderr, as JSON or as text: one a request, and one for what goes wrong. Never a prompt, never an answer.

Lines are made and written in groups: one by one each would find the processor busy with other code, and take twice as
long. Values that came from outside are redacted by value.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, Protocol

import orjson

__all__ = ["Log", "Output"]

_FLUSH_S = 0.05
_GROUP = 32
"""Lines are written at the latest when so many wait: more of them would push other things out of the processor's cache,
which cost a busy gateway 3% of the CPU of a request (x86-64 with 1 MB of it, 2026-11)."""
_MAX_PENDING = 10_000
"""Lines that wait to be written; more are counted and left out."""
_MAX_TEXT = 300
_MAX_READ = 8192
"""So much is searched for secrets before a text is cut, so that the cut leaves no part of one."""


class Output(Protocol):
    def write(self, data: bytes, /) -> int:
        """How many bytes it takes now. The rest is offered again a little later."""
        ...


class Log:
    """Writes events to `out`; None: nowhere. `now` gives Unix seconds, `redact` hides secrets in a text."""

    def __init__(
        self,
        out: Output | None,
        *,
        form: Literal["json", "text"],
        now: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self._out = out
        self._render = _json_line if form == "json" else _text_line
        self._now = now
        self.outside: Callable[[str], str] = lru_cache(maxsize=1024)(
            lambda text: _encodable(redact(text[:_MAX_READ])[:_MAX_TEXT])
        )
        """A text that a client chose, short, without secrets, and such that JSON can hold it."""
        self._pending: list[tuple[float, str, Mapping[str, object]]] = []
        self._lost = 0
        self._unwritten = b""
        self._timer: asyncio.TimerHandle | None = None

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Adds a line. The fields are the log's from now on."""
        if self._out is None:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._lost += 1
            return
        self._pending.append((self._now(), event, fields))
        if len(self._pending) == _GROUP:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)

    def fault(self, error: BaseException, **fields: object) -> None:
        """A fault of the gateway: where it happened, and the types of exceptions; their texts may quote a prompt."""
        self.write("internal_error", {**fields, "error": _trace(error)})

    def flush(self) -> None:
        """Writes what waits, as far as it is taken. What is not taken waits on, and so do the lines after it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._out is None:
            return
        if not self._unwritten:
            if self._lost:
                self._pending.append((self._now(), "log_lines_lost", {"count": self._lost}))
                self._lost = 0
            pending, self._pending = self._pending, []
            self._unwritten = b"".join([self._render(*line) for line in pending])
        if self._unwritten:
            self._unwritten = self._unwritten[self._out.write(self._unwritten) :]
        if self._unwritten:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)


def _json_line(time_s: float, event: str, fields: Mapping[str, object]) -> bytes:
    return orjson.dumps({"time": int(time_s * 1000) / 1000, "event": event, **fields}, option=orjson.OPT_APPEND_NEWLINE)


def _text_line(time_s: float, event: str, fields: Mapping[str, object]) -> bytes:
    stamp = datetime.fromtimestamp(time_s, UTC).strftime("%H:%M:%S")
    values = " ".join(f"{name}={_word(value)}" for name, value in fields.items())
    return f"{stamp} {event} {values}\n".encode("utf-8", "backslashreplace")


def _encodable(text: str) -> str:
    """Bytes of a path or header that are no UTF-8 come as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _word(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and " " not in text else repr(text)


def _trace(error: BaseException) -> str:
    """The frames and the type of an exception and of what caused it, without their texts."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 5:
        frames = list(traceback.walk_tb(current.__traceback__))[-8:]  # extract_tb would read every source file
        where = " < ".join(
            f"{frame.f_code.co_filename.rpartition('/')[2]}:{line}:{frame.f_code.co_name}"
            for frame, line in reversed(frames)
        )
        parts.append(f"{type(current).__name__} at {where}")
        current = current.__cause__ or current.__context__
    return "; caused by ".join(parts)
