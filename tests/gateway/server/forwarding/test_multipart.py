"""The fields of a multipart body are found wherever the body is cut, and nothing else is taken for them."""

import pytest

from adapters.canonical.errors import InvalidRequest
from gateway.server.forwarding.multipart import Field, FieldReader, boundary_of


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value


def body(*parts: bytes, boundary: bytes = b"b0") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + each + b"\r\n" for each in parts) + b"--" + boundary + b"--\r\n"


FILE = part("file", b'\r\n--b\r\n--b0x\x00 name="model"\r\n', '; filename="a; name=model"\r\nContent-Type: audio/wav')
MODEL = part("model", b"whisper/1")


def read(data: bytes, cut: int | None = None, step: int | None = None) -> list[Field]:
    reader = FieldReader(b"b0", {"model": 512, "prompt": 1000})
    for piece in [data[:cut], data[cut:]] if step is None else [data[i : i + step] for i in range(0, len(data), step)]:
        reader.feed(piece)
    reader.end()
    return reader.found


def found(data: bytes, cut: int | None = None, step: int | None = None) -> Field | None:
    """The model."""
    fields = [field for field in read(data, cut, step) if field.name == "model"]
    return fields[0] if fields else None


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
        assert field is not None
        assert field.value == "whisper/1"
        assert data[field.start : field.stop] == b"whisper/1"
    assert found(data, step=1) == field


def test_all_fields_that_are_asked_for_are_found_at_every_cut() -> None:
    data = body(part("prompt", b"one"), MODEL, FILE, part("prompt[]", b"x"), part("prompt", "zwö\r\nlf".encode()))
    for cut in range(len(data) + 1):
        fields = read(data, cut)
        assert [(field.name, field.value) for field in fields] == [
            ("prompt", "one"), ("model", "whisper/1"), ("prompt", "zwö\r\nlf"),
        ]  # fmt: skip
        assert [data[field.start : field.stop].decode() for field in fields] == [field.value for field in fields]


@pytest.mark.parametrize(
    "parameters",
    [
        "name=a; name=prompt",
        'name="a"; NAME="prompt"',
        "name*=utf-8''prompt",
        r'name="pro\mpt"',
        'name="file; name=prompt',
    ],
)
def test_a_name_that_others_might_read_otherwise_is_refused(parameters: str) -> None:
    data = body(f"Content-Disposition: form-data; {parameters}\r\n\r\nx".encode())
    with pytest.raises(InvalidRequest, match="not plain"):
        read(data)


@pytest.mark.parametrize("parts", [(FILE,), (part("file", b"x", '; filename="model"'),), (part("a", b'name="model"'),)])
def test_a_body_without_the_field_has_none(parts: tuple[bytes, ...]) -> None:
    data = body(*parts)
    for cut in range(len(data) + 1):
        assert found(data, cut) is None


def test_an_empty_name_is_empty() -> None:
    data = body(part("model", b""), FILE)
    for cut in range(len(data) + 1):
        field = found(data, cut)
        assert field is not None
        assert field.value == ""


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "last boundary"),
        (b"not multipart at all", "last boundary"),
        (body(MODEL)[:-12], "last boundary"),
        (body(part("model", b"x" * 513)), "model: longer than 512"),
        (b"--b0\r\nContent-Disposition: form-data; name=model\r\n\r\n" + b"x" * 100_000, "longer than 512"),
        (body(part("prompt", b"x" * 1001)), "prompt: longer than 1000"),
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
    reader = FieldReader(b"b0", {"model": 512})
    reader.feed(b"--b0\r\n" + part("file", b""))
    for _ in range(100):
        reader.feed(b"\r" * 10_000)
    assert len(reader._buffer) < 20_000
    reader.feed(b"\r\n--b0\r\n" + MODEL + b"\r\n--b0--")
    assert [field.value for field in reader.found] == ["whisper/1"]


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
