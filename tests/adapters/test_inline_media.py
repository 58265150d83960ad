"""Media in a request: data URIs as data, and types by what the bytes are."""

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import MediaSource
from adapters.inline_media import decoded, resolved

PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("source", "data", "media_type"),
    [
        (MediaSource(data=PNG), PNG, "image/png"),
        (MediaSource(data=PNG, media_type="image/jpeg"), PNG, "image/png"),
        (MediaSource(url=f"data:image/jpeg;base64,{PNG}"), PNG, "image/png"),
        (MediaSource(url="DATA:Text/Plain;charset=utf-8;BASE64,YWJj"), "YWJj", "text/plain"),
        (MediaSource(data="data:application/pdf;base64,JVBERi0="), "JVBERi0=", "application/pdf"),
        (MediaSource(data="R0lGODlh"), "R0lGODlh", "image/gif"),
        (MediaSource(data="/9j/4AAQ"), "/9j/4AAQ", "image/jpeg"),
        (MediaSource(data="UklGRgAAAABXRUJQ"), "UklGRgAAAABXRUJQ", "image/webp"),
        (MediaSource(data="YWJj", media_type="text/csv"), "YWJj", "text/csv"),
        (MediaSource(data="YWJj"), "YWJj", None),
    ],
)
def test_data_have_the_type_that_they_show_or_else_are_said_to_have(
    source: MediaSource, data: str, media_type: str | None
) -> None:
    assert resolved(source) == MediaSource(data=data, media_type=media_type)


@pytest.mark.parametrize("source", [MediaSource(url="https://a.example/b.png"), MediaSource(file_id="f")])
def test_a_reference_stays(source: MediaSource) -> None:
    assert resolved(source) is source


@pytest.mark.parametrize("text", ["data:image/png,abc", "data:image/png;base64", "not base64!"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        resolved(MediaSource(data=text))
    with pytest.raises(InvalidRequest):
        decoded("?")
