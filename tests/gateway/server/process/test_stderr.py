"""Nobody waits for whoever reads stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.server.process.stderr import Stderr, say


@contextmanager
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of a pipe whose other one is stderr."""
    read, write = os.pipe()
    with os.fdopen(write, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        yield read


def test_a_line_is_read_as_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with heard(monkeypatch) as reader:
        say("serving run.yaml \u00e4")
        assert os.read(reader, 100) == "gateway: serving run.yaml \u00e4\n".encode()
        os.close(reader)


def test_what_a_slow_reader_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(1_000_000)
    rest, told = data, b""
    with heard(monkeypatch) as reader:
        while rest:
            taken = Stderr().write(rest)
            assert taken < len(data)
            rest = rest[taken:]
            told += os.read(reader, len(data))
        os.close(reader)
    assert told == data


def test_nobody_hears_anything_once_the_reader_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with heard(monkeypatch) as reader:
        os.close(reader)
        assert Stderr().write(b"a line\n") == 7
        say("another")


def test_a_process_that_began_without_stderr_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert Stderr().write(b"a line\n") == 7
