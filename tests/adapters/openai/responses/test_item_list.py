"""Input items as a list shows them: the SDK reads each, ids are stable, and parsing them again gives the same."""

import json
from typing import Any

from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from adapters.openai.responses.item_list import as_given, listed_items
from adapters.openai.responses.parse import read_body
from tests.adapters.openai.responses.exchange import front_of, responses

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}], "id": None},
    {"role": "developer", "content": "be"},
    {"role": "assistant", "content": "hello"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}]},
    {"id": "rs_1", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "15"},
    {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "d", "output": "y"},
]


def listed(response_id: str = "resp_0a") -> list[dict[str, Any]]:
    asked = read_body(json.dumps({"model": "m", "input": ITEMS}).encode(), max_depth=64)
    return [json.loads(item) for item in listed_items(asked.input_items, response_id)]


def test_every_item_is_the_sdks_item() -> None:
    for item in listed():
        ITEM.validate_python(item, strict=True)


def test_ids_are_given_or_follow_from_the_response_and_the_place() -> None:
    found = [item["id"] for item in listed()]
    assert found[:2] == ["msg_0a8000", "msg_0a8001"]
    assert (found[5], found[7]) == ("rs_1", "fco_0a8007")
    assert len(set(found)) == len(found)
    assert found == [item["id"] for item in listed()]
    assert found != [item["id"] for item in listed("resp_0b")]


def test_what_is_listed_says_the_same_as_what_came() -> None:
    again = responses(input=listed()).request
    assert again.messages == responses(input=ITEMS).request.messages


def test_an_id_that_an_item_got_here_is_not_sent_on_and_another_is() -> None:
    bare = b'{"type":"computer_call_output","call_id":"c","output":{"n":1.50}}'
    thought = b'{"type":"reasoning","summary":[],"encrypted_content":"BLOB"}'
    own = b'{"id":"cuo_6a1","type":"computer_call_output","call_id":"c","output":{}}'
    kept = listed_items([bare, thought, own], "resp_b093a42b8859a00d637c9a1d")
    assert all(json.loads(item)["id"] for item in kept)
    assert [as_given(item) for item in kept] == [bare, thought, own]
    sent = responses(input=[json.loads(item) for item in kept]).sent()["input"]
    assert [item.get("id") for item in sent] == [None, None, "cuo_6a1"]


def test_a_text_is_the_message_that_it_stands_for_and_nothing_is_rebuilt() -> None:
    asked = read_body(b'{"model":"m","input":"hi"}', max_depth=64)
    (item,) = [json.loads(item) for item in listed_items(asked.input_items, "resp_0a")]
    assert (item["role"], item["content"]) == ("user", [{"type": "input_text", "text": "hi"}])
    raw = b'{"type":"later_call",\n"n":12345678901234567890123,"x":1.50}'
    (kept,) = listed_items([raw], "resp_0a")
    assert b'"n":12345678901234567890123,"x":1.50' in kept
    assert asked.request(front_of().seal).messages is not None
