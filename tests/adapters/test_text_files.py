"""Files of text for models that read text alone: told by their bytes, whatever they are called."""

import base64

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import CacheHint, Document, File, MediaSource, Text
from adapters.text_files import as_document, as_plain_text


def file(data: bytes, media_type: str | None = None, name: str | None = None) -> File:
    source = MediaSource(data=base64.b64encode(data).decode(), media_type=media_type)
    return File(source=source, filename=name, cache=CacheHint())


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"a,b\n1,2\n", "text/csv"),
        ('{"ä": 1}'.encode(), "application/json"),
        ("# Grüße\r\n\tx\f".encode(), None),
        (b"\x1b[1mfett\x1b[0m", "application/octet-stream"),
        (b"", "text/plain"),
    ],
)
def test_what_is_utf_8_is_text(data: bytes, media_type: str | None) -> None:
    assert as_document(file(data, media_type, "a")) == Document(title="a", text=data.decode(), cache=CacheHint())


def test_a_mark_of_the_byte_order_is_no_part_of_the_text() -> None:
    document = as_document(file("\ufeffx".encode()))
    assert document is not None
    assert document.text == "x"


@pytest.mark.parametrize(
    "part",
    [
        file(b"%PDF-1.4 all in ASCII"),
        file(b"<svg/>", "image/svg+xml"),
        file("ü".encode("latin-1"), "text/plain"),
        file(b"a\x00b", "text/plain"),
        file(b"PK\x03\x04", "application/zip"),
        File(source=MediaSource(url="https://a.example/a.txt")),
        File(source=MediaSource(file_id="file_1")),
        Document(),
    ],
)
def test_what_is_no_text_or_lies_elsewhere_stays_what_it_is(part: File | Document) -> None:
    assert as_document(part) is None
    assert as_plain_text(part) is None


def test_a_data_uri_is_read_as_its_data() -> None:
    uri = MediaSource(data="data:text/markdown;base64," + base64.b64encode(b"# A").decode())
    assert as_plain_text(File(source=uri, filename="a.md")) == Text(text="a.md\n# A")


def test_what_is_not_base64_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="base64"):
        as_document(File(source=MediaSource(data="a,b\n1,2")))


def test_a_document_keeps_its_context_and_one_to_be_cited_is_no_plain_text() -> None:
    source = MediaSource(data=base64.b64encode(b"x").decode(), media_type="text/plain")
    document = Document(source=source, title="t", context="c")
    assert as_document(document) == Document(text="x", title="t", context="c")
    assert as_plain_text(document) == Text(text="t\nc\nx")
    assert as_plain_text(Document(source=source, citations=True)) is None
    told = Document(text="x", title="t")
    assert as_document(told) is told
