"""What the load asks, in every dialect, and how an answer of each says that it ended: well, badly, and only once."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["STREAMS", "Question", "question"]

Ends = Callable[[list[str]], tuple[int, int]]
"""From a stream's frames to how many good ends and how many errors it told."""
_PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
_TURNS = [{"role": "user", "content": "hi there"}]


@dataclass(frozen=True)
class Question:
    path: str
    body: dict[str, Any]
    ends: Ends | None
    """None: the answer comes whole."""

    def ended_well(self, status: int, body: bytes) -> bool:
        """Fails unless the answer ended in exactly one way."""
        if status != 200 or self.ends is None:
            told = json.loads(body)
            assert (status != 200) == ("error" in told and told["error"] is not None), (self.path, status, body)
            return status == 200
        good, bad = self.ends(body.decode().split("\n"))
        assert good + bad == 1, (self.path, body)
        return bool(good)


def question(random: random.Random) -> Question:
    """Any one of them."""
    return random.choice(_ALL)(random)


def _data(lines: Sequence[str]) -> list[Any]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def _choices_end(lines: list[str]) -> tuple[int, int]:
    frames = _data(lines)
    assert [line for line in lines if line][-1] == "data: [DONE]"
    finishes = [c for frame in frames for c in frame.get("choices", ()) if c.get("finish_reason")]
    return len(finishes), sum("error" in frame for frame in frames)


def _typed_end(good: str, bad: str) -> Ends:
    def ends(lines: list[str]) -> tuple[int, int]:
        kinds = [frame["type"] for frame in _data(lines)]
        return kinds.count(good), kinds.count(bad)

    return ends


def _gemini_end(lines: list[str]) -> tuple[int, int]:
    frames = _data(lines)
    reasons = [c for frame in frames for c in frame.get("candidates", ()) if c.get("finishReason")]
    return len(reasons), sum("error" in frame for frame in frames)


def _ollama_end(lines: list[str]) -> tuple[int, int]:
    frames = [json.loads(line) for line in lines if line]
    return sum(bool(frame.get("done")) for frame in frames), sum("error" in frame for frame in frames)


def _model(random: random.Random) -> str:
    return "local/tiny" if random.random() < 0.1 else "smart"


def _chat(random: random.Random) -> Question:
    stream, tools = random.random() < 0.6, random.random() < 0.3
    body: dict[str, Any] = {"model": _model(random), "messages": _TURNS, "stream": stream, "max_tokens": 5}
    who = f"{random.getrandbits(64):x}"  # each request is of another user, in another session
    body |= {"user": who, "safety_identifier": who, "prompt_cache_key": who, "metadata": {"session_id": who}}
    if tools:
        function = {"name": "find", "parameters": _PARAMETERS}
        body |= {"model": "smart", "tools": [{"type": "function", "function": function}]}
    return Question("/v1/chat/completions", body, _choices_end if stream else None)


def _completions(random: random.Random) -> Question:
    stream = random.random() < 0.5
    body = {"model": "local/tiny", "prompt": "hi", "stream": stream, "max_tokens": 5}
    return Question("/v1/completions", body, _choices_end if stream else None)


def _responses(random: random.Random) -> Question:
    stream = random.random() < 0.5
    body: dict[str, Any] = {"model": "smart", "input": "hi there", "stream": stream, "store": random.random() < 0.3}
    if random.random() < 0.3:
        body["tools"] = [{"type": "function", "name": "find", "parameters": _PARAMETERS, "strict": False}]
    return Question("/v1/responses", body, _typed_end("response.completed", "response.failed") if stream else None)


def _messages(random: random.Random) -> Question:
    stream = random.random() < 0.5
    body: dict[str, Any] = {"model": _model(random), "messages": _TURNS, "stream": stream, "max_tokens": 5}
    if random.random() < 0.3:
        body |= {"model": "smart", "tools": [{"name": "find", "input_schema": _PARAMETERS}]}
    return Question("/v1/messages", body, _typed_end("message_stop", "error") if stream else None)


def _gemini(random: random.Random) -> Question:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi there"}]}]}
    if random.random() < 0.5:
        return Question("/v1beta/models/smart:generateContent", body, None)
    return Question("/v1beta/models/smart:streamGenerateContent?alt=sse", body, _gemini_end)


def _ollama(random: random.Random) -> Question:
    stream, chat = random.random() < 0.5, random.random() < 0.5
    asked: dict[str, Any] = {"messages": _TURNS} if chat else {"prompt": "hi there"}
    path = "/api/chat" if chat else "/api/generate"
    return Question(path, {"model": "smart", "stream": stream, **asked}, _ollama_end if stream else None)


def _embeddings(random: random.Random) -> Question:
    return Question("/v1/embeddings", {"model": "smart", "input": "hi there"}, None)


STREAMS = {
    # One of each dialect of chats, whose answer is streamed.
    "chat": Question("/v1/chat/completions", {"messages": _TURNS, "stream": True}, _choices_end),
    "responses": Question(
        "/v1/responses", {"input": "hi", "stream": True}, _typed_end("response.completed", "response.failed")
    ),
    "messages": Question(
        "/v1/messages", {"messages": _TURNS, "stream": True, "max_tokens": 5}, _typed_end("message_stop", "error")
    ),
    "gemini": Question(
        "/v1beta/models/MODEL:streamGenerateContent?alt=sse", {"contents": [{"parts": [{"text": "hi"}]}]}, _gemini_end
    ),
    "ollama": Question("/api/chat", {"messages": _TURNS}, _ollama_end),
}
_ALL = (_chat, _chat, _completions, _responses, _messages, _gemini, _ollama, _embeddings)
