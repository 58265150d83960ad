"""A whole chat completion to the client: a result as one object."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import orjson

from adapters.canonical.citation import Citation
from adapters.canonical.messages import (
    Audio,
    Image,
    MediaSource,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    joined_data,
)
from adapters.canonical.request import Request
from adapters.canonical.result import Choice, Result
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.front import AnswerHead
from adapters.openai.annotations import chat_annotations
from adapters.openai.chat.images import IMAGES, image_objects
from adapters.openai.content import REASONING_DETAILS, reasoning_details
from adapters.openai.finish import finish_fields, finish_word
from adapters.openai.logprobs import chat_logprobs_object
from adapters.openai.prompt_report import prompt_fields
from adapters.openai.signed_reasoning import signed_details
from adapters.openai.unmapped import place_data, place_fields
from adapters.openai.usage import USAGE, usage_object
from adapters.openai.vocabulary import CHAT, arguments_field
from adapters.raw_json import add_missing, fragments
from adapters.thought_text import thought_text
from adapters.usage_fields import told_apart

__all__ = ["render_chat_result"]


def render_chat_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    fields, usage_fields = told_apart(result.fields_of(CHAT), USAGE)
    body: dict[str, Any] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_choice_object(request, choice, result.provider_origin) for choice in result.choices],
        "usage": None if result.usage is None else usage_object(result.usage, usage_fields),
    }
    for prompt in result.prompts:
        body.update(fragments(prompt_fields(prompt)))
    add_missing(body, fields)
    return orjson.dumps(body)


def _choice_object(request: Request, choice: Choice, origin: str | None) -> dict[str, Any]:
    message = _message_object(choice.parts)
    logprobs = chat_logprobs_object(choice.logprobs, choice.refusal_logprobs, choice.reasoning_logprobs)
    body: dict[str, Any] = {
        "index": choice.index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish_word(request, choice.finish),
        **finish_fields(choice.finish),
    }
    if choice.token_ids:
        body["token_ids"] = choice.token_ids
    if origin == CHAT:
        place_fields(choice.provider_fields, body, message)
    return body


def _message_object(parts: Sequence[Part]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    texts: list[str] = []
    annotations: list[Any] = []
    cited: list[tuple[int, Citation]] = []
    starts: dict[int, int] = {}
    length = 0
    refusals: list[str] = []
    reasoning: list[Reasoning] = []
    calls: list[dict[str, Any]] = []
    images: list[MediaSource] = []
    for number, part in enumerate(parts):
        match part:
            case Text():
                texts.append(part.text)
                starts[number] = length
                length += len(part.text)
                if part.annotated_by == CHAT:
                    annotations += [orjson.Fragment(raw) for raw in part.annotations]
                else:
                    cited += [(number, citation) for citation in part.citations]
            case Refusal():
                refusals.append(part.text)
            case Reasoning():
                reasoning.append(part)
            case ToolCall():
                calls.append(_call_object(part))
            case Audio():
                message["audio"] = _audio_object(part)
            case Image():
                images.append(part.source)
            case _:
                pass  # the other kinds have no word in this dialect
    if texts:
        message["content"] = "".join(texts)
    if refusals:
        message["refusal"] = "".join(refusals)
    if reasoning:
        message["reasoning_content"] = "".join(map(thought_text, reasoning))
        details = reasoning_details(reduce(joined_data, [part.provider_data for part in reasoning]))
        if found := signed_details(parts) if details is None else details:
            message[REASONING_DETAILS] = found
    annotations += chat_annotations(cited, starts, length)
    if annotations:
        message["annotations"] = annotations
    if images:
        message[IMAGES] = image_objects(images)
    if calls:
        message["tool_calls"] = calls
    return message


def _audio_object(part: Audio) -> dict[str, Any]:
    return {
        "id": part.id or "",
        "data": part.source.data or "",
        "transcript": part.transcript or "",
        "expires_at": part.expires_at or 0,
    }


def _call_object(part: ToolCall) -> dict[str, Any]:
    kind = CUSTOM if part.kind == CUSTOM else FUNCTION
    inner = {"name": part.name, arguments_field(kind): part.arguments}
    call: dict[str, Any] = {"id": part.id, "type": kind, kind: inner}
    place_data(part.provider_data, call)
    return call
