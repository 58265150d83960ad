"""The short way for input items gives what the general way gives."""

import orjson
import pytest

from adapters.canonical.messages import Message
from adapters.openai.responses.input_items import InputReader
from adapters.openai.responses.plain_items import plain_item
from adapters.openai.responses.sealing import ClientSeal, Sealer

UNKNOWN = {"new_field": None}
"""Says nothing, and sends an item the general way."""
PARTS: list[dict[str, object]] = [
    {"type": "input_text", "text": "Hi"},
    {"type": "output_text", "text": "", "annotations": [], "logprobs": [1]},
]
CALL: dict[str, object] = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
PLAIN: list[dict[str, object]] = [
    {"type": "message", "role": "user", "content": "Hi \u00e9"},
    {"type": "message", "role": "system", "content": ""},
    {"type": "message", "role": "developer", "content": PARTS},
    {"type": "message", "role": "user", "content": []},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": PARTS},
    {"type": "message", "role": "assistant", "content": "Hm", "phase": "commentary"},
    CALL,
    {**CALL, "id": "fc_1", "status": "completed", "created_by": None},
    {"type": "function_call_output", "call_id": "c1", "output": "done", "id": None},
    {"type": "function_call_output", "call_id": "c1", "output": PARTS},
]


def read(*items: dict[str, object]) -> tuple[list[Message], list[str]]:
    reader = InputReader(ClientSeal(Sealer("k", b"s" * 32), ""), {})
    for place, item in enumerate(items):
        reader.add(orjson.dumps(item), f"input[{place}]")
    reader.close()
    return reader.messages, reader.paths


@pytest.mark.parametrize("item", PLAIN)
def test_a_plain_item_is_the_same_either_way(item: dict[str, object]) -> None:
    assert plain_item(orjson.dumps(item)) is not None
    assert plain_item(orjson.dumps({**item, **UNKNOWN})) is None
    assert read(item) == read({**item, **UNKNOWN})


def test_turns_are_joined_either_way() -> None:
    assert read(*PLAIN) == read(*[{**item, **UNKNOWN} for item in PLAIN])


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "Hi"},
        {"type": "message", "role": "user"},
        {"type": "message", "role": "critic", "content": "Hi"},
        {"type": "message", "role": "user", "content": None},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://a.test/b.png"}]},
        {"type": "message", "role": "assistant", "content": [{**PARTS[1], "annotations": [{"type": "x"}]}]},
        {**CALL, "namespace": "n"},
        {**CALL, "name": ""},
        {**CALL, "arguments": None},
        {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
        {"type": "function_call_output", "call_id": "c1"},
    ],
)
def test_anything_else_goes_the_general_way(item: dict[str, object]) -> None:
    assert plain_item(orjson.dumps(item)) is None
