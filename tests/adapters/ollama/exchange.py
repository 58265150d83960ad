"""A client's request, and what its front and Ollama's upstream make of it, as the tests here use them."""

import json
from typing import Any

from adapters.front import AnswerHead, Front
from adapters.ollama.front import OllamaChatFront, OllamaGenerateFront
from adapters.ollama.upstream import OllamaUpstream
from adapters.openai.chat.front import ChatFront
from adapters.openai.completions.front import CompletionsFront
from tests.adapters.sides import Sides, refuse_constant

__all__ = ["HEAD", "PROVIDER", "Exchange", "chat", "completion", "generate", "lines", "lines_of", "ollama"]

HEAD = AnswerHead("answer-1", 1790000001, "public-name")
PROVIDER = "llama"


class Exchange(Sides):
    """The client is named by a field `client` of the body, which is taken out: chat, completions, generate or Ollama's
    chat (none). Minted call ids count from 1 in each stream."""

    def __init__(self, body: bytes) -> None:
        fields = json.loads(body)
        fronts: dict[str | None, Front] = {
            "chat": ChatFront(),
            "completions": CompletionsFront(),
            "generate": OllamaGenerateFront(),
        }
        front = fronts.get(fields.pop("client", None)) or OllamaChatFront()
        self.ollama_upstream = OllamaUpstream(PROVIDER, new_id=lambda: f"gwcall_minted_{self.mint()}")
        super().__init__(front, self.ollama_upstream, HEAD, json.dumps(fields).encode())

    def path(self) -> str:
        return self.ollama_upstream.path_of(self.request)


def _exchange(default: dict[str, Any], fields: dict[str, Any]) -> Exchange:
    return Exchange(json.dumps({**default, **fields}).encode())


def ollama(**fields: Any) -> Exchange:
    """An exchange for a body of /api/chat with these fields set or replaced."""
    return _exchange({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, fields)


def generate(**fields: Any) -> Exchange:
    """The same of /api/generate."""
    return _exchange({"client": "generate", "model": "m", "prompt": "hi"}, fields)


def chat(**fields: Any) -> Exchange:
    """The same of an OpenAI chat client."""
    return _exchange({"client": "chat", "model": "m", "messages": [{"role": "user", "content": "hi"}]}, fields)


def completion(**fields: Any) -> Exchange:
    return _exchange({"client": "completions", "model": "m", "prompt": "hi"}, fields)


def lines(*rows: dict[str, Any]) -> bytes:
    """A stream of these lines."""
    return b"".join([json.dumps(row).encode() + b"\n" for row in rows])


def lines_of(stream: bytes) -> list[dict[str, Any]]:
    """The JSON of each line."""
    *rows, last = stream.split(b"\n")
    assert last == b""
    return [json.loads(row, parse_constant=refuse_constant) for row in rows]
