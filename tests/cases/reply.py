"""An answer of the gateway as a strict client reads it: JSON without NaN, whole SSE frames, folded chunks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Choice", "Reply", "fold", "message_of"]


@dataclass(frozen=True)
class Reply:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON and say so."""
        assert self.headers["content-type"].partition(";")[0] == "application/json", self.body[:300]
        return strict_json(self.body)

    @property
    def ok(self) -> Any:
        """The body of a 200."""
        assert self.status == 200, (self.status, self.body[:300])
        return self.json

    @property
    def error(self) -> dict[str, Any]:
        """The error of a failed request, as OpenAI's dialect has it."""
        assert self.status >= 400, (self.status, self.body[:300])
        return _error_of(self.json)

    @property
    def frames(self) -> list[str]:
        """The data of every event of a stream, [DONE] included. Each frame is whole."""
        assert self.status == 200, (self.status, self.body[:300])
        assert self.headers["content-type"].partition(";")[0] == "text/event-stream"
        text = self.body.decode()
        assert text.endswith("\n\n"), text[-200:]
        blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        return ["\n".join(line.removeprefix("data: ") for line in _data_lines(block)) for block in blocks]

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The named events of a stream as (name, data), for dialects that name them."""
        assert self.status == 200, (self.status, self.body[:300])
        found = []
        for block in self.body.decode().split("\n\n"):
            names = [line.removeprefix("event: ") for line in block.split("\n") if line.startswith("event: ")]
            data = "\n".join(line.removeprefix("data: ") for line in _data_lines(block))
            if names:
                found.append((names[0], strict_json(data)))
        return found

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The chunks of a stream that ended well: only chunks, then one [DONE]."""
        chunks = self._before_done()
        assert all("error" not in chunk for chunk in chunks), chunks
        return chunks

    @property
    def broken_off(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The chunks of a stream that failed, and its error: the last frame before [DONE]."""
        *chunks, last = self._before_done()
        assert all("error" not in chunk for chunk in chunks), chunks
        return chunks, _error_of(last)

    def _before_done(self) -> list[dict[str, Any]]:
        *frames, last = self.frames
        assert last == "[DONE]", self.body[-300:]
        return [strict_json(frame) for frame in frames]


def strict_json(text: str | bytes) -> Any:
    """Refuses NaN and Infinity, which JSON does not have."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def _error_of(body: Any) -> dict[str, Any]:
    error: dict[str, Any] = body["error"]
    assert set(body) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return error


def _data_lines(block: str) -> list[str]:
    return [line for line in block.split("\n") if line.startswith("data: ")]


@dataclass
class Choice:
    """One choice of a chat stream, put together as SDKs do: strings are joined, calls go by index."""

    role: str = ""
    content: str = ""
    reasoning: str = ""
    finishes: list[str] = field(default_factory=list)
    calls: list[dict[str, str]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def finish(self) -> str:
        (word,) = self.finishes
        return word


def fold(chunks: Sequence[Mapping[str, Any]]) -> dict[int, Choice]:
    """The choices of a chat stream by index. Each has its role once, and nothing after its finish."""
    choices: dict[int, Choice] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], Choice())
            assert not choice.finishes, "a chunk after the finish"
            delta = part["delta"]
            choice.role += delta.get("role") or ""
            choice.content += delta.get("content") or ""
            choice.reasoning += delta.get("reasoning_content") or ""
            choice.logprobs += (part.get("logprobs") or {}).get("content") or []
            for call in delta.get("tool_calls") or []:
                _add_call(choice.calls, call)
            if part["finish_reason"] is not None:
                choice.finishes.append(part["finish_reason"])
    assert all(choice.role == "assistant" for choice in choices.values())
    return choices


def _add_call(calls: list[dict[str, str]], delta: Mapping[str, Any]) -> None:
    """Strict as the SDK's accumulator is: an index that is not dense fails, and repeated ids would be joined."""
    assert delta["index"] <= len(calls)
    if delta["index"] == len(calls):
        assert delta["id"], "a call must begin with its id and name"
        assert delta["function"]["name"]
        calls.append({"id": "", "name": "", "arguments": ""})
    call = calls[delta["index"]]
    assert delta.get("id") != "", "an empty id"
    call["id"] += delta.get("id") or ""
    call["name"] += delta["function"].get("name") or ""
    call["arguments"] += delta["function"].get("arguments") or ""


def message_of(body: Mapping[str, Any], index: int = 0) -> Choice:
    """A choice of a whole chat answer, in the form of a folded stream."""
    found = body["choices"][index]
    assert found["index"] == index
    message = found["message"]
    return Choice(
        role=message["role"],
        content=message["content"] or "",
        reasoning=message.get("reasoning_content") or "",
        finishes=[found["finish_reason"]],
        calls=[
            {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
            for call in message.get("tool_calls") or []
        ],
        logprobs=(found.get("logprobs") or {}).get("content") or [],
    )
