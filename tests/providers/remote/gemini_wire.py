"""Gemini's words on the wire, and a provider connected to a server that says them."""

import json
from functools import partial
from typing import Any

from providers.remote.gemini import GeminiProvider
from tests.mock_upstream import Answer
from tests.providers.remote.connection import connected_to

__all__ = ["chunk", "connected", "response", "streamed", "whole"]

USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}


def response(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r1", **more}


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    found = response(*parts, finish=finish, **more)
    return b"data: %b\r\n\r\n" % json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def streamed(*pieces: bytes, finish: str = "STOP") -> Answer:
    return Answer.sse([*pieces, chunk({"text": ""}, finish=finish, usageMetadata=USAGE)])


def whole(*parts: dict[str, Any], finish: str = "STOP") -> Answer:
    body = response(*parts, finish=finish, usageMetadata=USAGE)
    return Answer.json(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())


connected = partial(connected_to, GeminiProvider, type="gemini")
