"""What an answer is drawn from reaches the clients of every dialect that has a word for it, at the right characters."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from anthropic.types import Message as SdkMessage
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from adapters.anthropic.citations import parse_citation as parse_anthropic
from adapters.anthropic.front import MessagesFront
from adapters.bedrock.citations import parse_citation as parse_bedrock
from adapters.canonical.citation import Citation
from adapters.canonical.events import AnnotationAdded, ChoiceFinished, Event, TextDelta
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.cohere.citations import parse_citation as parse_cohere
from adapters.front import AnswerHead, Front
from adapters.gemini.front import GenerateFront
from adapters.ollama.front import OllamaChatFront
from adapters.openai.annotations import listed_sources, parse_annotation
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.responses.render import replayed
from tests.adapters.anthropic.exchange import Exchange as AnthropicExchange
from tests.adapters.openai.responses.exchange import front_of
from tests.adapters.test_golden import BOTH, exchange_of

HEAD = AnswerHead("answer", 1790000001, "public-name")
PARSERS: tuple[Callable[[bytes], object], ...] = (parse_anthropic, parse_bedrock, parse_annotation)
ASKED = [{"role": "user", "content": "hi"}]
BODIES: dict[str, tuple[Callable[[], Front], dict[str, Any]]] = {
    "chat": (ChatFront, {"model": "m", "messages": ASKED}),
    "responses": (front_of, {"model": "m", "input": "hi"}),
    "messages": (MessagesFront, {"model": "m", "max_tokens": 9, "messages": ASKED}),
    "gemini": (lambda: GenerateFront(stream=True, sse=True), {"contents": [{"parts": [{"text": "hi"}]}]}),
    "ollama": (OllamaChatFront, {"model": "m", "messages": ASKED}),
    "completions": (CompletionsFront, {"model": "m", "prompt": "hi"}),
}
Cited = tuple[str, str]
Told = list[Cited]
"""Sources, each with the piece of the answer that is drawn from it."""

GREEN, BLUE = "grass is green", "the sky 🌍 is blue"
WET, OSLO = "Es regnet.", "Grüße aus Oslo 🌍."
EXPECTED: dict[str, dict[str, Told]] = {
    "anthropic/citations": {
        "chat": [("https://a.example/sky", BLUE), ("https://b.example", BLUE)],
        "responses": [("https://a.example/sky", BLUE), ("file_1", BLUE), ("https://b.example", BLUE)],
        "messages": [
            ("The grass is green.", GREEN),
            *[(source, BLUE) for source in ("The sky is blue.", "Blue.", "b", "c")],
        ],
        "gemini": [
            ("Nature", GREEN),
            *[(source, BLUE) for source in ("https://a.example/sky", "file_1", "https://b.example", "C")],
        ],
        "ollama": [],
    },
    "gemini/citations": {
        "chat": [
            ("https://a.example", OSLO),
            ("https://a.example", WET),
            ("gs://b/c", WET),
            ("https://c.example", "Oslo"),
        ],
        "messages": [(source, f"{OSLO} {WET}") for source in ("", "", "It rains.", "")],
        "gemini": [("https://a.example", OSLO), ("https://a.example", WET), ("C", WET)],
        "ollama": [],
    },
    "cohere/citations_of_documents": {
        "chat": [("https://birds.example", "Penguins")],
        "responses": [("https://birds.example", "Penguins")],
        "messages": [("Penguins swim.", "🐧: Penguins swim.")],
        "gemini": [("https://birds.example", "Penguins"), ("They swim.", "swim"), ("Sea", "swim")],
        "ollama": [],
    },
    "bedrock/citations": {
        "chat": [("https://w.example", "cited"), ("https://r.example", "cited")],
        "responses": [("https://w.example", "cited"), ("https://r.example", "cited")],
        "messages": [("", "cited"), ("of the web", "cited"), ("found", "cited")],
        "completions": [],
        "gemini": [("t", "cited"), ("https://w.example", "cited"), ("https://r.example", "cited")],
    },
    "openai/annotations": {
        "chat": [("https://example.test/a", "Oslo"), ("https://example.test/b", "Oslo")],
        "responses": [("https://example.test/a", "Oslo"), ("https://example.test/b", "Oslo")],
        "messages": [("", "Oslo"), ("", "Oslo")],
        "gemini": [("https://example.test/a", "Oslo"), ("https://example.test/b", "Oslo")],
    },
}
EXPECTED["gemini/citations"]["responses"] = EXPECTED["gemini/citations"]["chat"]


def body_of(name: str, events: Sequence[Event]) -> Any:
    front, body = BODIES[name]
    made = front()
    return json.loads(made.render_result(made.parse(json.dumps(body).encode(), max_depth=64), fold(events), HEAD))


def stream_of(name: str, events: Sequence[Event]) -> list[Any]:
    """The JSON of each frame."""
    front, body = BODIES[name]
    made = front()
    renderer = made.renderer(made.parse(json.dumps(body).encode(), max_depth=64), HEAD)
    frames = b"".join([renderer.feed([event]) for event in events]) + renderer.finish()
    lines = [line.removeprefix(b"data: ") for line in frames.splitlines() if line.startswith((b"data: {", b"{"))]
    return [json.loads(line) for line in lines]


def told_in_body(name: str, found: Any) -> Told:
    match name:
        case "chat":
            message = found["choices"][0]["message"]
            notes = [note["url_citation"] for note in message.get("annotations", ())]
            return [(note["url"], message["content"][note["start_index"] : note["end_index"]]) for note in notes]
        case "responses":
            parts = [part for item in found["output"] if item["type"] == "message" for part in item["content"]]
            return [told_of_note(note, part["text"]) for part in parts for note in part["annotations"]]
        case "messages":
            blocks = [block for block in found["content"] if block["type"] == "text"]
            pairs = [(note, block["text"]) for block in blocks for note in block.get("citations", ())]
            return [(note.get("cited_text", ""), text) for note, text in pairs]
        case "gemini":
            candidate = found["candidates"][0]
            said = "".join([part["text"] for part in candidate["content"]["parts"] if not part.get("thought")])
            return told_of_grounding(candidate.get("groundingMetadata", {}), said)
        case _:
            assert "example" not in json.dumps(found)
            return []


def told_of_note(note: dict[str, Any], text: str) -> Cited:
    if note["type"] == "file_citation":
        return note["file_id"], text
    return note["url"], text[note["start_index"] : note["end_index"]]


def told_of_grounding(grounding: dict[str, Any], text: str) -> Told:
    told: Told = []
    for support in grounding.get("groundingSupports", ()):
        segment = support["segment"]
        piece = text.encode()[segment.get("startIndex", 0) : segment["endIndex"]].decode()
        assert piece == segment["text"]
        for number in support["groundingChunkIndices"]:
            if number < len(grounding["groundingChunks"]):
                chunk = grounding["groundingChunks"][number]
                source = chunk.get("web") or chunk["retrievedContext"]
                web = "web" in chunk
                told.append((source["uri"] if web else source.get("title") or source["text"], piece))
    return told


def whole_of(name: str, frames: list[Any]) -> Any:
    """The body that a client of the stream adds up."""
    match name:
        case "chat":
            deltas = [choice["delta"] for frame in frames for choice in frame["choices"]]
            said = "".join([delta.get("content") or "" for delta in deltas])
            notes = [note for delta in deltas for note in delta.get("annotations", ())]
            return {"choices": [{"message": {"content": said, "annotations": notes}}]}
        case "responses":
            found = frames[-1]["response"]
            added = [frame["annotation"] for frame in frames if frame["type"].endswith("annotation.added")]
            parts = [part for item in found["output"] if item["type"] == "message" for part in item["content"]]
            assert added == [note for part in parts for note in part["annotations"]]
            return found
        case "messages":
            blocks: list[Any] = []
            for frame in frames:
                if frame["type"] == "content_block_start":
                    blocks.append({**frame["content_block"], "citations": []})
                elif frame["type"] == "content_block_delta":
                    delta = frame["delta"]
                    blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
                    blocks[-1]["citations"] += [delta["citation"]] if "citation" in delta else []
            return {"content": blocks}
        case "gemini":
            parts = [part for frame in frames for part in frame["candidates"][0].get("content", {}).get("parts", ())]
            return {"candidates": [{**frames[-1]["candidates"][0], "content": {"parts": parts}}]}
        case _:
            return frames


CASES = [
    pytest.param(case, front, expected, id=f"{case}-{front}")
    for case, fronts in EXPECTED.items()
    for front, expected in fronts.items()
]


@pytest.mark.parametrize(("case_id", "front", "expected"), CASES)
def test_every_client_reads_what_its_dialect_can_say(case_id: str, front: str, expected: Told) -> None:
    case = next(case for case in BOTH if case.id == case_id)
    assert case.stream is not None
    assert case.body is not None
    streamed, _ = exchange_of(case).read_stream(case.stream)
    body, _ = exchange_of(case).read_body(case.body)
    assert told_in_body(front, body_of(front, body)) == expected
    assert told_in_body(front, whole_of(front, stream_of(front, streamed))) == expected


SDK_TYPES: dict[str, type[BaseModel]] = {
    "chat": ChatCompletion,
    "responses": Response,
    "messages": SdkMessage,
    "gemini": GenerateContentResponse,
}


@pytest.mark.parametrize("front", SDK_TYPES)
@pytest.mark.parametrize("case_id", EXPECTED)
def test_the_sdk_of_each_dialect_knows_the_citations_by_their_types(case_id: str, front: str) -> None:
    case = next(case for case in BOTH if case.id == case_id)
    assert case.body is not None
    events, _ = exchange_of(case).read_body(case.body)
    found = body_of(front, events)
    taken = json.loads(SDK_TYPES[front].model_validate(found).model_dump_json(by_alias=True, exclude_unset=True))
    assert told_in_body(front, taken) == told_in_body(front, found)


def test_sources_that_stand_beside_the_choices_are_cited_once_each() -> None:
    fields = {
        "citations": b'["https://a.example","https://b.example"]',
        "search_results": b'[{"url":"https://b.example","title":"B","snippet":"b says"},{"title":"no address"}]',
    }
    assert [(each.url, each.title, each.cited_text) for each in listed_sources(fields)] == [
        ("https://b.example", "B", "b says"),
        ("https://a.example", None, None),
    ]
    assert listed_sources({"citations": b'{"of": "another kind"}'}) == ()


def test_listed_sources_reach_other_dialects_and_leave_chat_as_it_was() -> None:
    body = {
        "id": "x",
        "citations": ["https://a.example"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "So."}, "finish_reason": "stop"}],
    }
    case = next(case for case in BOTH if case.id == "openai/annotations")
    events, error = exchange_of(case).read_body(json.dumps(body).encode())
    assert error is None
    assert "annotations" not in body_of("chat", events)["choices"][0]["message"]
    assert body_of("chat", events)["citations"] == ["https://a.example"]
    for front in ("responses", "gemini"):
        assert told_in_body(front, body_of(front, events)) == [("https://a.example", "So.")]
        assert told_in_body(front, whole_of(front, stream_of(front, events))) == [("https://a.example", "So.")]


def test_a_stored_answer_says_its_citations_again() -> None:
    for case_id in EXPECTED:
        case = next(case for case in BOTH if case.id == case_id)
        assert case.body is not None
        events, _ = exchange_of(case).read_body(case.body)
        result = fold(events)
        assert fold(replayed(result)).choices[0].parts == result.choices[0].parts


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"1", b'{"type":1}', b'{"sources":3,"location":4,"url_citation":5}'])
def test_an_annotation_that_nobody_knows_is_kept_as_it_came_and_means_nothing(raw: bytes) -> None:
    for parse in PARSERS:
        assert not parse(raw)


def test_a_citation_made_for_another_providers_answer_does_not_go_to_anthropic() -> None:
    made = {"type": "web_search_result_location", "url": "https://a.example", "encrypted_index": "", "cited_text": ""}
    own = {**made, "encrypted_index": "E"}
    block = {"type": "text", "text": "So.", "citations": [made, own]}
    turns = [*ASKED, {"role": "assistant", "content": [block]}, *ASKED]
    body = {"model": "m", "max_tokens": 9, "messages": turns}
    sent = AnthropicExchange(json.dumps(body).encode()).sent()
    assert sent["messages"][1]["content"][0]["citations"] == [own]


def test_annotations_that_a_chat_client_plays_back_stop_no_other_provider() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    turns = [*ASKED, {"role": "assistant", "content": "So.", "annotations": [note]}, *ASKED]
    request = ChatFront().parse(json.dumps({"model": "m", "messages": turns}).encode(), max_depth=64)
    assert request.messages is not None
    assert request.messages[1].extras is None
    sent = json.loads(ChatUpstream().render_request(request))
    assert sent["messages"][1]["annotations"] == [note]


def test_a_citation_of_cohere_without_sources_means_nothing() -> None:
    assert parse_cohere(b"[]") is None
    found = parse_cohere(b'{"start": 0, "end": 2, "sources": []}')
    assert found is not None
    assert found.citations == ()


def test_a_place_beyond_the_text_is_held_to_it() -> None:
    far = Citation(url="https://a.example", start=2, end=90)
    events: list[Event] = [
        TextDelta(0, 0, "One. "),
        TextDelta(0, 1, "Two."),
        AnnotationAdded(0, 1, b"{}", "another", (far, Citation(url="https://b.example"))),
        ChoiceFinished(0, StopReason.STOP),
    ]
    for front, whole in (("chat", "Two."), ("responses", "Two."), ("gemini", "Two.")):
        expected = [("https://a.example", "o."), ("https://b.example", whole)]
        assert told_in_body(front, body_of(front, events)) == expected
        assert told_in_body(front, whole_of(front, stream_of(front, events))) == expected
