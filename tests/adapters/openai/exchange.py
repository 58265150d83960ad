"""Both sides of OpenAI's dialect around one request, as the tests here use them."""

import json
from typing import Any

from adapters.front import AnswerHead, Front
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.upstream import Upstream
from tests.adapters.sides import Sides, refuse_constant

__all__ = ["DONE", "HEAD", "Exchange", "chat", "chunks_of", "completion", "sse"]

HEAD = AnswerHead("chatcmpl-gateway", 1790000001, "public-name")
DONE = b"data: [DONE]\n\n"


class Exchange(Sides):
    """Minted call ids count from call_1 in each stream."""

    def __init__(self, body: bytes) -> None:
        front: Front
        upstream: Upstream
        if b'"messages"' in body:
            front, upstream = ChatFront(), ChatUpstream(new_id=lambda: f"call_{self.mint()}")
        else:
            front, upstream = CompletionsFront(), CompletionsUpstream()
        super().__init__(front, upstream, HEAD, body)


def chat(**fields: Any) -> Exchange:
    """An exchange for a chat body with these fields set or replaced."""
    return Exchange(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def completion(**fields: Any) -> Exchange:
    return Exchange(json.dumps({"model": "m", "prompt": "hi", **fields}).encode())


def sse(*chunks: Any) -> bytes:
    """A stream of these chunks, without an end."""
    return b"".join([b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks])


def chunks_of(frames: bytes) -> list[dict[str, Any]]:
    """The JSON of each frame, which must end in [DONE]."""
    blocks = frames.split(b"\n\n")
    assert blocks[-2:] == [b"data: [DONE]", b""]
    assert all(block.startswith(b"data: {") for block in blocks[:-2])
    return [json.loads(block[6:], parse_constant=refuse_constant) for block in blocks[:-2]]
