"""What is left of a response whose maker died, whatever the moment, is a valid failed response."""

import json

import pytest

from adapters.canonical.errors import InternalError
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    HostedToolEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.stop_reason import StopReason
from adapters.openai.responses.kept import id_of, referenced_ids, resolved_items, salvaged, with_output
from tests.adapters.openai.responses.event_order import check_events
from tests.adapters.openai.responses.exchange import HEAD, front_of, responses

EVENTS: list[Event] = [
    ReasoningDelta(0, 0, "let me "),
    ReasoningDelta(0, 0, "think"),
    TextDelta(0, 1, "Hel"),
    TextDelta(0, 1, "lo"),
    RefusalDelta(0, 2, "no"),
    ToolCallStarted(0, 3, "c1", "f"),
    ToolArgumentsDelta(0, 3, '{"a"'),
    ToolArgumentsDelta(0, 3, ":1}"),
    ToolCallFinished(0, 3),
    ToolCallStarted(0, 4, "c2", "g", "custom"),
    ToolArgumentsDelta(0, 4, "x"),
    ChoiceFinished(0, StopReason.TOOL_CALLS),
]


@pytest.mark.parametrize("summary", [None, "auto"])
@pytest.mark.parametrize("count", range(len(EVENTS) + 1))
def test_69_the_log_of_a_dead_maker_adds_up_to_a_failed_response(count: int, summary: str | None) -> None:
    front = front_of()
    request = responses(reasoning={"summary": summary}).request
    live = front.live(request, HEAD)
    log = live.queue()
    first = live.snapshot()
    log += live.start()
    for event in EVENTS[:count]:
        log += live.feed([event])
    found = salvaged(first, log, InternalError("the gateway stopped", code="gateway_stopped"))
    response = check_events([json.loads(event.data) for event in [*log, found.event]])
    assert response == json.loads(found.body)
    assert (response["status"], response["error"]["type"]) == ("failed", "gateway_stopped")
    live.fail(InternalError("x"))
    alive = json.loads(live.snapshot())
    assert response["output"] == alive["output"]
    assert {**response, "error": 0, "status": 0} == {**alive, "error": 0, "status": 0}


def test_code_that_an_upstream_had_begun_is_left_of_a_response_whose_maker_died() -> None:
    item = {"type": "code_interpreter_call", "id": "ci_1", "status": "in_progress", "code": None, "container_id": "c"}
    told = {"type": "response.code_interpreter_call_code.delta", "item_id": "ci_1", "delta": "print("}
    live = front_of().live(responses(tools=[{"type": "code_interpreter", "container": "c"}]).request, HEAD)
    log = live.queue() + live.start()
    log += live.feed(
        [HostedToolEvent(0, 0, "response.output_item.added", json.dumps(item).encode(), "openai.responses")]
    )
    log += live.feed([HostedToolEvent(0, 0, told["type"], json.dumps(told).encode(), "openai.responses")])
    found = salvaged(live.snapshot(), log, InternalError("the gateway stopped", code="gateway_stopped"))
    assert [json.loads(one) for one in found.items] == [{**item, "code": "print(", "status": "incomplete"}]


def test_references_are_found_and_stand_for_their_items() -> None:
    items = [b'{"type":"item_reference","id":"a"}', b'{"id":"b"}', b'{"role":"user","content":"x","id":"c"}', b"[]"]
    assert referenced_ids(items) == ["a", "b"]
    kept = {"a": b'{"id":"a","type":"message"}'}
    assert resolved_items(items, kept) == [kept["a"], *items[1:]]
    assert id_of(kept["a"]) == "a"


def test_an_output_is_put_into_a_response() -> None:
    assert json.loads(with_output(b'{"id":"r","output":[1],"n":12345678901234567890123}', [b'{"id":"x"}'])) == {
        "id": "r",
        "output": [{"id": "x"}],
        "n": 12345678901234567890123,
    }
