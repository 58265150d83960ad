"""How each dialect spells one conversation: what its client sends and reads, and what its server reads and answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from adapters.anthropic.front import MessagesFront
from adapters.anthropic.upstream import MessagesUpstream
from adapters.bedrock.upstream import ConverseUpstream
from adapters.cohere.upstream import CohereUpstream
from adapters.front import Front
from adapters.gemini.front import GenerateFront
from adapters.gemini.upstream import GenerateUpstream
from adapters.ollama.front import OllamaChatFront
from adapters.ollama.upstream import OllamaUpstream
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.sealing import Sealer
from adapters.openai.responses.upstream import ResponsesUpstream
from adapters.upstream import Upstream
from providers.remote.aws import EventStreamFrames

__all__ = ["CLIENTS", "PROVIDER", "SERVERS", "Client", "Server", "Turn"]

PROVIDER = "up"
TOOLS = ("f", "g")
Calls = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Turn:
    """What one side said: `calls` and `results` in order, a result as the tool's name and what it gave."""

    role: str
    text: str = ""
    calls: Calls = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    thought: str = field(default="", compare=False)


@dataclass(frozen=True)
class Client:
    """`body` is a request with these messages in its words; `user` a message of the user; `said` what the client keeps
    of an answer and how it reads it; `results` the messages that answer its calls."""

    front: Callable[[], Front]
    body: Callable[[list[Any]], dict[str, Any]]
    user: Callable[[str], Any]
    said: Callable[[Any], tuple[Any, Turn]]
    results: Callable[[Any, list[str]], list[Any]]


@dataclass(frozen=True)
class Server:
    """`read` gives the turns of a request's body, `answer` the body that says a turn."""

    upstream: Callable[[], Upstream]
    read: Callable[[Any], list[Turn]]
    answer: Callable[[Turn], Any]


def _arguments(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _merged(turns: list[Turn]) -> list[Turn]:
    """Neighbours that give results are one turn, as every dialect means them."""
    found: list[Turn] = []
    for turn in turns:
        if found and turn.role == found[-1].role == "user" and turn.results and not found[-1].text:
            found[-1] = Turn("user", turn.text, [], found[-1].results + turn.results)
        else:
            found.append(turn)
    return found


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


# OpenAI's chat


def _chat_said(body: Any) -> tuple[Any, Turn]:
    message = body["choices"][0]["message"]
    calls = [(c["function"]["name"], _arguments(c["function"]["arguments"])) for c in message.get("tool_calls", ())]
    return message, Turn("model", message["content"] or "", calls, thought=message.get("reasoning_content", ""))


def _chat_results(message: Any, outputs: list[str]) -> list[Any]:
    ids = [call["id"] for call in message["tool_calls"]]
    return [{"role": "tool", "tool_call_id": i, "content": text} for i, text in zip(ids, outputs, strict=True)]


def _chat_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append(Turn("user", results=[(names[message["tool_call_id"]], message["content"])]))
            continue
        made = message.get("tool_calls", ())
        names.update({call["id"]: call["function"]["name"] for call in made})
        calls = [(call["function"]["name"], _arguments(call["function"]["arguments"])) for call in made]
        role = "model" if message["role"] == "assistant" else message["role"]
        found.append(Turn(role, message["content"] or "", calls))
    return _merged(found)


def _chat_answer(turn: Turn) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "reasoning_content": turn.thought}
    if turn.calls:
        message["tool_calls"] = [
            {"id": f"call_{next(_ids)}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for n, a in turn.calls
        ]
    word = "tool_calls" if turn.calls else "stop"
    return {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": word}]}


# Anthropic's Messages


def _messages_said(body: Any) -> tuple[Any, Turn]:
    blocks = body["content"]
    calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    text = "".join([block["text"] for block in blocks if block["type"] == "text"])
    thought = "".join([block["thinking"] for block in blocks if block["type"] == "thinking"])
    return {"role": "assistant", "content": blocks}, Turn("model", text, calls, thought=thought)


def _messages_results(message: Any, outputs: list[str]) -> list[Any]:
    ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in zip(ids, outputs, strict=True)]
    return [{"role": "user", "content": blocks}]


def _messages_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        content = message["content"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        made = [block for block in blocks if block["type"] == "tool_use"]
        names.update({block["id"]: block["name"] for block in made})
        results = [
            (names[block["tool_use_id"]], block["content"]) for block in blocks if block["type"] == "tool_result"
        ]
        text = "".join([block["text"] for block in blocks if block["type"] == "text"])
        role = "model" if message["role"] == "assistant" else "user"
        found.append(Turn(role, text, [(block["name"], block["input"]) for block in made], results))
    return found


def _messages_answer(turn: Turn) -> Any:
    blocks: list[dict[str, Any]] = []
    if turn.thought:
        blocks.append({"type": "thinking", "thinking": turn.thought, "signature": f"SIG{next(_ids)}"})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [{"type": "tool_use", "id": f"toolu_{next(_ids)}", "name": n, "input": a} for n, a in turn.calls]
    word = "tool_use" if turn.calls else "end_turn"
    return {"id": "m", "type": "message", "role": "assistant", "content": blocks, "stop_reason": word, "usage": {}}


# Gemini's generateContent


def _gemini_said(body: Any) -> tuple[Any, Turn]:
    content = body["candidates"][0]["content"]
    parts = content["parts"]
    calls = [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part]
    text = "".join([part["text"] for part in parts if "text" in part and not part.get("thought")])
    thought = "".join([part["text"] for part in parts if part.get("thought")])
    return content, Turn("model", text, calls, thought=thought)


def _gemini_results(content: Any, outputs: list[str]) -> list[Any]:
    calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    parts = [
        {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": text}}}
        for call, text in zip(calls, outputs, strict=True)
    ]
    return [{"role": "user", "parts": parts}]


def _gemini_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    for content in body["contents"]:
        parts = [part for part in content["parts"] if not part.get("thought")]
        calls = [(p["functionCall"]["name"], p["functionCall"]["args"]) for p in parts if "functionCall" in p]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        results = [(answer["name"], answer["response"]["output"]) for answer in answers]
        found.append(Turn(content["role"], "".join([part.get("text", "") for part in parts]), calls, results))
    return found


def _gemini_answer(turn: Turn) -> Any:
    parts: list[dict[str, Any]] = [{"text": turn.thought, "thought": True}] if turn.thought else []
    if turn.text:
        parts.append({"text": turn.text})
    calls: list[dict[str, Any]] = [{"functionCall": {"name": n, "args": a}} for n, a in turn.calls]
    if calls:
        calls[0]["thoughtSignature"] = f"SIG{next(_ids)}"
    return {"candidates": [{"content": {"parts": parts + calls, "role": "model"}, "finishReason": "STOP"}]}


# Ollama's chat


def _ollama_said(body: Any) -> tuple[Any, Turn]:
    message = body["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return message, Turn("model", message["content"], calls, thought=message.get("thinking", ""))


def _ollama_results(message: Any, outputs: list[str]) -> list[Any]:
    names = [call["function"]["name"] for call in message["tool_calls"]]
    return [{"role": "tool", "tool_name": n, "content": text} for n, text in zip(names, outputs, strict=True)]


def _ollama_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append(Turn("user", results=[(message["tool_name"], message["content"])]))
            continue
        made = message.get("tool_calls", ())
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in made]
        role = "model" if message["role"] == "assistant" else message["role"]
        found.append(Turn(role, message["content"], calls))
    return _merged(found)


def _ollama_answer(turn: Turn) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "thinking": turn.thought}
    message["tool_calls"] = [{"function": {"name": n, "arguments": a}} for n, a in turn.calls]
    return {"model": "m", "message": message, "done": True, "done_reason": "stop"}


# OpenAI's Responses


def _responses_body(entries: list[Any]) -> dict[str, Any]:
    """An entry is an item, or the items of one answer."""
    return {
        "model": "m",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [item for entry in entries for item in (entry if isinstance(entry, list) else [entry])],
        "tools": [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in TOOLS],
    }


def _responses_said(body: Any) -> tuple[Any, Turn]:
    items = body["output"]
    calls = [(item["name"], _arguments(item["arguments"])) for item in items if item["type"] == "function_call"]
    text = "".join([part["text"] for item in items if item["type"] == "message" for part in item["content"]])
    thoughts = [item for item in items if item["type"] == "reasoning"]
    shown = [part["text"] for item in thoughts for part in item.get("content") or item["summary"]]
    return items, Turn("model", text, calls, thought="".join(shown))


def _responses_results(items: Any, outputs: list[str]) -> list[Any]:
    ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    return [
        {"type": "function_call_output", "call_id": i, "output": text} for i, text in zip(ids, outputs, strict=True)
    ]


def _responses_read(body: Any) -> list[Turn]:
    """Items of the model that follow each other are one turn."""
    found: list[Turn] = []
    names: dict[str, str] = {}
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            found.append(Turn("user", results=[(names[item["call_id"]], item["output"])]))
            continue
        made = kind != "message" or item["role"] == "assistant"
        if made and (not found or found[-1].role != "model"):
            found.append(Turn("model"))
        if kind == "function_call":
            names[item["call_id"]] = item["name"]
            found[-1].calls.append((item["name"], _arguments(item["arguments"])))
        elif kind == "message":
            content = item["content"]
            text = content if isinstance(content, str) else "".join([part["text"] for part in content])
            found.append(replace(found.pop(), text=text) if made else Turn("user", text))
    return _merged(found)


def _responses_answer(turn: Turn) -> Any:
    items: list[dict[str, Any]] = []
    if turn.thought:
        summary = [{"type": "summary_text", "text": turn.thought}]
        items.append({"type": "reasoning", "id": "rs", "summary": summary, "encrypted_content": f"SIG{next(_ids)}"})
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        items.append({"type": "message", "id": "ms", "role": "assistant", "status": "completed", "content": content})
    for name, arguments in turn.calls:
        made = {"id": "fc", "call_id": f"call_{next(_ids)}", "name": name, "arguments": json.dumps(arguments)}
        items.append({"type": "function_call", "status": "completed"} | made)
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": items}


# Bedrock's Converse


def _converse_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        blocks = message["content"]
        made = [block["toolUse"] for block in blocks if "toolUse" in block]
        names.update({call["toolUseId"]: call["name"] for call in made})
        answers = [block["toolResult"] for block in blocks if "toolResult" in block]
        results = [(names[answer["toolUseId"]], answer["content"][0]["text"]) for answer in answers]
        text = "".join([block["text"] for block in blocks if "text" in block])
        role = "model" if message["role"] == "assistant" else "user"
        found.append(Turn(role, text, [(call["name"], call["input"]) for call in made], results))
    return found


def _converse_answer(turn: Turn) -> Any:
    blocks: list[dict[str, Any]] = []
    if turn.thought:
        thought = {"text": turn.thought, "signature": f"SIG{next(_ids)}"}
        blocks.append({"reasoningContent": {"reasoningText": thought}})
    if turn.text:
        blocks.append({"text": turn.text})
    for name, arguments in turn.calls:
        blocks.append({"toolUse": {"toolUseId": f"tooluse_{next(_ids)}", "name": name, "input": arguments}})
    word = "tool_use" if turn.calls else "end_turn"
    return {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": word, "usage": {}}


# Cohere's chat


def _cohere_read(body: Any) -> list[Turn]:
    found: list[Turn] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append(Turn("user", results=[(names[message["tool_call_id"]], message["content"])]))
            continue
        made = message.get("tool_calls", ())
        names.update({call["id"]: call["function"]["name"] for call in made})
        calls = [(call["function"]["name"], _arguments(call["function"]["arguments"])) for call in made]
        content = message.get("content", "")
        if isinstance(content, list):
            content = "".join([block.get("text", "") for block in content])
        role = "model" if message["role"] == "assistant" else message["role"]
        found.append(Turn(role, message.get("tool_plan", "") + content, calls))
    return _merged(found)


def _cohere_answer(turn: Turn) -> Any:
    content = [{"type": "thinking", "thinking": turn.thought}] if turn.thought else []
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if turn.calls:
        message["tool_plan"] = turn.text
        message["tool_calls"] = [
            {"id": f"call_{next(_ids)}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for n, a in turn.calls
        ]
    else:
        content.append({"type": "text", "text": turn.text})
    return {"id": "c", "finish_reason": "TOOL_CALL" if turn.calls else "COMPLETE", "message": message}


_ids = count(1)


def _user(text: str) -> Any:
    return {"role": "user", "content": text}


CLIENTS: Mapping[str, Client] = {
    "chat": Client(
        ChatFront,
        lambda messages: {"model": "m", "messages": messages, "tools": [_function(name) for name in TOOLS]},
        _user,
        _chat_said,
        _chat_results,
    ),
    "messages": Client(
        MessagesFront,
        lambda messages: {
            "model": "m",
            "max_tokens": 64,
            "messages": messages,
            "tools": [{"name": name, "input_schema": {"type": "object"}} for name in TOOLS],
        },
        _user,
        _messages_said,
        _messages_results,
    ),
    "gemini": Client(
        GenerateFront,
        lambda contents: {
            "contents": contents,
            "tools": [{"functionDeclarations": [{"name": name} for name in TOOLS]}],
        },
        lambda text: {"role": "user", "parts": [{"text": text}]},
        _gemini_said,
        _gemini_results,
    ),
    "ollama": Client(
        OllamaChatFront,
        lambda messages: {
            "model": "m",
            "messages": messages,
            "stream": False,
            "tools": [_function(name) for name in TOOLS],
        },
        _user,
        _ollama_said,
        _ollama_results,
    ),
    "responses": Client(
        lambda: ResponsesFront(Sealer("k1", b"secret"), lambda: 1790000000.0),
        _responses_body,
        _user,
        _responses_said,
        _responses_results,
    ),
}

SERVERS: Mapping[str, Server] = {
    "chat": Server(ChatUpstream, _chat_read, _chat_answer),
    "messages": Server(lambda: MessagesUpstream(PROVIDER), _messages_read, _messages_answer),
    "gemini": Server(lambda: GenerateUpstream(PROVIDER), _gemini_read, _gemini_answer),
    "ollama": Server(lambda: OllamaUpstream(PROVIDER), _ollama_read, _ollama_answer),
    "cohere": Server(lambda: CohereUpstream(PROVIDER), _cohere_read, _cohere_answer),
    "converse": Server(lambda: ConverseUpstream(PROVIDER, EventStreamFrames), _converse_read, _converse_answer),
    "responses": Server(lambda: ResponsesUpstream(PROVIDER), _responses_read, _responses_answer),
}
