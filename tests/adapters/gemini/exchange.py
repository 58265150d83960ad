"""A client's request, and what its front and Gemini's upstream make of it, as the tests here use them."""

import json
from typing import Any

from msgspec.structs import replace

from adapters.front import AnswerHead, Front
from adapters.gemini.front import GenerateFront
from adapters.gemini.upstream import GenerateUpstream
from adapters.openai.chat.front import ChatFront
from tests.adapters.sides import Sides, refuse_constant

__all__ = ["HEAD", "PROVIDER", "Exchange", "chat", "chunks_of", "generate", "parts_of", "sse"]

HEAD = AnswerHead("answer-1", 1790000001, "public-name")
PROVIDER = "google"


class Exchange(Sides):
    """`front` is Gemini's for a body with contents and OpenAI's chat for another. Minted call ids count from 1 in
    each stream."""

    def __init__(self, body: bytes, model: str = "gemini-3-pro") -> None:
        front: Front = GenerateFront(stream=True, sse=True) if b'"contents"' in body else ChatFront()
        self.generate_upstream = GenerateUpstream(PROVIDER, new_id=lambda: f"gwcall_minted_{self.mint()}")
        super().__init__(front, self.generate_upstream, HEAD, body)
        if not self.request.model:
            self.request = replace(self.request, model=model)


def generate(*, model: str = "gemini-3-pro", **fields: Any) -> Exchange:
    """An exchange for a body of generateContent with these fields set or replaced."""
    user = {"role": "user", "parts": [{"text": "hi"}]}
    return Exchange(json.dumps({"contents": [user], **fields}).encode(), model)


def chat(**fields: Any) -> Exchange:
    """The same of a chat client."""
    body = {"model": "gemini-3-pro", "messages": [{"role": "user", "content": "hi"}], **fields}
    return Exchange(json.dumps(body).encode())


def sse(*chunks: dict[str, Any]) -> bytes:
    """A stream of these chunks."""
    return b"".join([b"data: %b\r\n\r\n" % json.dumps(chunk).encode() for chunk in chunks])


def chunks_of(frames: bytes) -> list[dict[str, Any]]:
    """The JSON of each frame."""
    *blocks, last = frames.split(b"\r\n\r\n")
    assert last == b""
    assert all(block.startswith(b"data: {") for block in blocks)
    return [json.loads(block[6:], parse_constant=refuse_constant) for block in blocks]


def parts_of(frames: bytes, index: int = 0) -> list[dict[str, Any]]:
    """The parts of a candidate that a stream adds up to, texts of one kind joined as clients do."""
    found: list[dict[str, Any]] = []
    for chunk in chunks_of(frames):
        for candidate in chunk.get("candidates", ()):
            if candidate["index"] != index:
                continue
            for part in candidate.get("content", {"parts": ()})["parts"]:
                _join(found, part)
    return found


def _join(found: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """A signature alone belongs to the thought before it; an empty text says nothing."""
    if part == {"text": ""}:
        return
    last = found[-1] if found else {}
    if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
        thought = part.get("thought", False)
        signed = "thoughtSignature" in part
        if "thoughtSignature" not in last and (not signed or thought):
            found[-1] = {**last, **part, "text": last["text"] + part["text"]}
            return
    found.append(part)
