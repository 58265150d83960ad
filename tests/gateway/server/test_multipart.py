"""The model's name in a multipart body is found wherever the body is cut, and nothing else is taken for it."""

import pytest

from adapters.canonical.errors import InvalidRequest
from gateway.server.multipart import ModelField, boundary_of


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value


def body(*parts: bytes, boundary: bytes = b"b0") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + each + b"\r\n" for each in parts) + b"--" + boundary + b"--\r\n"


FILE = part("file", b'\r\n--b\r\n--b0x\x00 name="model"\r\n', '; filename="a; name=model"\r\nContent-Type: audio/wav')
MODEL = part("model", b"whisper/1")


def found(data: bytes, cut: int | None = None, step: int | None = None) -> ModelField:
    field = ModelField(b"b0")
    pieces = [data[:cut], data[cut:]] if step is None else [data[i : i + step] for i in range(0, len(data), step)]
    for piece in pieces:
        if not field.done:
            field.feed(piece)
    field.end()
    return field


@pytest.mark.parametrize(
    "parts",
    [
        (MODEL, FILE),
        (FILE, MODEL),
        (part("models", b"x"), part("prompt", b""), FILE, MODEL),
        (b"content-disposition:form-data; name=model\r\nX: y\r\n\r\nwhisper/1",),
        (part("a", b""), MODEL),
    ],
)
def test_the_name_is_found_at_every_cut_and_where_it_stands(parts: tuple[bytes, ...]) -> None:
    data = body(*parts)
    for cut in range(len(data) + 1):
        field = found(data, cut)
        assert field.value == "whisper/1"
        assert data[field.start : field.stop] == b"whisper/1"
    assert found(data, step=1).value == "whisper/1"


@pytest.mark.parametrize("parts", [(FILE,), (part("file", b"x", '; filename="model"'),), (part("a", b'name="model"'),)])
def test_a_body_without_the_field_has_none(parts: tuple[bytes, ...]) -> None:
    data = body(*parts)
    for cut in range(len(data) + 1):
        assert found(data, cut).value is None


def test_an_empty_name_is_empty() -> None:
    data = body(part("model", b""), FILE)
    for cut in range(len(data) + 1):
        assert found(data, cut).value == ""


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "last boundary"),
        (b"not multipart at all", "last boundary"),
        (body(MODEL)[:-12], "last boundary"),
        (body(part("model", b"x" * 513)), "too long"),
        (b"--b0\r\nContent-Disposition: form-data; name=model\r\n\r\n" + b"x" * 100_000, "too long"),
        (b"--b0\r\n" + b"X: y\r\n" * 5000, "headers"),
        (body(*[part("a", b"")] * 257), "256 parts"),
        (body(part("model", b"\xff")), "UTF-8"),
    ],
)
def test_a_broken_or_endless_body_is_refused(data: bytes, word: str) -> None:
    for step in (1, 64, len(data) or 1):
        with pytest.raises(InvalidRequest, match=word):
            found(data, step=step)


def test_what_lies_before_the_name_is_not_kept() -> None:
    field = ModelField(b"b0")
    field.feed(b"--b0\r\n" + part("file", b""))
    for _ in range(100):
        field.feed(b"\r" * 10_000)
    assert len(field._buffer) < 20_000
    field.feed(b"\r\n--b0\r\n" + MODEL + b"\r\n--b0--")
    assert field.value == "whisper/1"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('multipart/form-data; charset=utf-8; Boundary="a b;c"', b"a b;c"),
    ],
)
def test_the_boundary_is_read_with_and_without_quotes(content_type: str, expected: bytes) -> None:
    assert boundary_of(content_type) == expected


def test_a_multipart_type_without_a_boundary_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="boundary"):
        boundary_of("multipart/form-data")
