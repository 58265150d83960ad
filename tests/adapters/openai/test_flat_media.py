"""Media that stand in their parts as texts: read from any client, and written for who knows no other form."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import File, MediaSource
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.quirks import Quirks
from tests.adapters.openai.exchange import chat

WAV = "UklGRiQAAABXQVZFZm10IA=="
SOUND = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
SOUND_AT = {"type": "input_audio", "input_audio": "https://a.test/x"}
PDF = "data:application/pdf;base64,JVBERi0="


def sent(part: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    request = chat(messages=[{"role": "user", "content": [part]}]).request
    (message,) = json.loads(ChatUpstream(Quirks(flat_media=flat)).render_request(request))["messages"]
    (found,) = message["content"]
    return dict(found)


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ({"type": "image_url", "image_url": "u"}, {"type": "image_url", "image_url": {"url": "u"}}),
        ({"type": "input_audio", "input_audio": WAV}, SOUND),
        ({"type": "file", "file_id": "f"}, {"type": "file", "file": {"file_id": "f"}}),
    ],
)
def test_media_as_texts_reach_others_as_objects(flat: dict[str, Any], nested: dict[str, Any]) -> None:
    assert sent(flat) == nested


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (SOUND, {"type": "input_audio", "input_audio": WAV}),
        (SOUND_AT, SOUND_AT),
        ({"type": "file", "file": {"file_id": "f"}}, {"type": "file", "file_id": "f"}),
        (
            {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
            {"type": "document_url", "document_url": PDF, "document_name": "a.pdf"},
        ),
    ],
)
def test_media_reach_who_wants_texts_as_texts(nested: dict[str, Any], flat: dict[str, Any]) -> None:
    assert sent(nested, flat=True) == flat


def test_a_document_by_its_address_is_a_file_and_goes_to_its_own_dialect_as_it_came() -> None:
    part = {"type": "document_url", "document_url": "https://a.test/b", "document_name": "b.pdf"}
    request = chat(messages=[{"role": "user", "content": [part]}]).request
    (found,) = (request.messages or ())[0].parts
    assert isinstance(found, File)
    assert (found.source, found.filename) == (MediaSource(url="https://a.test/b"), "b.pdf")
    assert sent(part) == part
    assert sent(part, flat=True) == part


def test_sound_that_is_no_base64_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        chat(messages=[{"role": "user", "content": [{"type": "input_audio", "input_audio": "?"}]}]).request  # noqa: B018
