"""Lines of the log: all of them and in order, made when they are written, and bounded while they wait."""

import io

import orjson
import pytest

from gateway.server import log as module
from gateway.server.log import Log


class Clock:
    def __init__(self) -> None:
        self.time = 1_800_014_400.5

    def __call__(self) -> float:
        self.time += 1
        return self.time


def lines_of(out: io.BytesIO) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


async def test_lines_are_written_together_each_with_the_time_at_which_it_came() -> None:
    out = io.BytesIO()
    log = Log(out, form="json", now=Clock(), redact=str)
    log.write("request", {"status": 200, "model": "m"})
    log.write("attempt", {"kind": "hedge"})
    assert out.getvalue() == b""
    log.flush()
    assert lines_of(out) == [
        {"time": 1_800_014_401.5, "event": "request", "status": 200, "model": "m"},
        {"time": 1_800_014_402.5, "event": "attempt", "kind": "hedge"},
    ]


async def test_lines_beyond_the_bound_are_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PENDING", 3)
    out = io.BytesIO()
    log = Log(out, form="json", now=Clock(), redact=str)
    for number in range(5):
        log.write("request", {"number": number})
    log.flush()
    log.write("request", {"number": 5})
    log.flush()
    assert [(line["event"], line.get("number", line.get("count"))) for line in lines_of(out)] == [
        ("request", 0),
        ("request", 1),
        ("request", 2),
        ("log_lines_lost", 2),
        ("request", 5),
    ]


async def test_a_text_line_is_one_line_whatever_its_values_hold() -> None:
    out = io.BytesIO()
    log = Log(out, form="text", now=Clock(), redact=str)
    log.write("request", {"model": "two\nlines", "status": 200, "error": "\ud800"})
    log.flush()
    assert out.getvalue() == b"12:00:01 request model='two\\nlines' status=200 error='\\ud800'\n"


async def test_bytes_that_are_no_text_break_no_line() -> None:
    out = io.BytesIO()
    log = Log(out, form="json", now=Clock(), redact=str)
    log.write("request", {"path": log.outside(b"/\xff".decode("utf-8", "surrogateescape"))})
    log.write("request", {"path": log.outside("/ü")})
    log.flush()
    assert [line["path"] for line in lines_of(out)] == ["/\\udcff", "/ü"]


async def test_a_fault_names_its_place_and_its_type_and_not_what_it_says() -> None:
    out = io.BytesIO()
    log = Log(out, form="json", now=Clock(), redact=str)
    try:
        raise ValueError("a prompt")
    except ValueError as error:
        log.fault(error, request_id="r")
    log.flush()
    (line,) = lines_of(out)
    assert str(line["error"]).startswith("ValueError at test_log.py:")
    assert b"a prompt" not in out.getvalue()


class Narrow:
    """Takes a few bytes at a time, and none while it is `full`."""

    def __init__(self) -> None:
        self.taken = b""
        self.full = False

    def write(self, data: bytes, /) -> int:
        count = 0 if self.full else 7
        self.taken += data[:count]
        return len(data[:count])


async def test_what_is_not_taken_waits_and_nothing_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PENDING", 3)
    out = Narrow()
    log = Log(out, form="json", now=Clock(), redact=str)
    log.write("first", {})
    log.flush()
    out.full = True
    for number in range(5):
        log.write("later", {"number": number})
        log.flush()
    out.full = False
    for _ in range(100):
        log.flush()
    lines = [orjson.loads(line) for line in out.taken.splitlines()]
    assert [line["event"] for line in lines] == ["first", "later", "later", "later", "log_lines_lost"]
    assert lines[-1]["count"] == 2
