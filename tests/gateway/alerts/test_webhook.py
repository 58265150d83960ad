"""Alerts reach an address, one after the other; what is not taken is tried again, and then told in the log."""

import json

import pytest

from gateway.alerts import webhook
from gateway.alerts.alert import Alert
from gateway.alerts.webhook import AlertWebhook
from tests.mock_upstream import Answer, MockUpstream

FIRST = Alert("budget_used", "a", "A has used 80%", {"scope": "key:a"})
SECOND = Alert("target_down", "b", "b fails", {})
Lines = list[tuple[str, dict[str, object]]]


def built(url: str, waits_s: tuple[float, ...] = ()) -> tuple[AlertWebhook, Lines]:
    lines: Lines = []
    log = lambda event, fields: lines.append((event, fields))  # noqa: E731
    return AlertWebhook(url, {"authorization": "Bearer x"}, log, now=lambda: 7.5, waits_s=waits_s), lines


async def test_alerts_are_posted_in_their_order_and_told_in_the_log() -> None:
    async with MockUpstream(Answer(), Answer(status=204)) as hook:
        sender, lines = built(hook.base_url)
        sender.tell(FIRST)
        sender.tell(SECOND)
        await sender.aclose()
        bodies = [json.loads(request.body) for request in hook.requests]
        assert bodies == [
            {"event": "budget_used", "id": "a", "text": "A has used 80%", "at": 7, "scope": "key:a"},
            {"event": "target_down", "id": "b", "text": "b fails", "at": 7},
        ]
        assert {request.headers["authorization"] for request in hook.requests} == {"Bearer x"}
    assert lines == [
        ("alert", {"alert": "budget_used", "scope": "key:a"}),
        ("alert", {"alert": "target_down"}),
    ]


async def test_what_is_not_taken_is_tried_again() -> None:
    async with MockUpstream(Answer(status=503), Answer()) as hook:
        sender, lines = built(hook.base_url, waits_s=(0.0,))
        sender.tell(FIRST)
        await until_posted(sender)
        assert len(hook.requests) == 2
    assert [event for event, _ in lines] == ["alert"]


async def test_what_nobody_takes_is_told_in_the_log() -> None:
    sender, lines = built("http://127.0.0.1:1/", waits_s=(0.0,))
    sender.tell(FIRST)
    await until_posted(sender)
    assert lines[1] == ("alert_not_sent", {"id": "a", "reason": "ClientConnectorError"})


async def test_the_end_waits_for_no_further_try() -> None:
    async with MockUpstream(Answer(status=500), Answer()) as hook:
        sender, lines = built(hook.base_url, waits_s=(3600.0,))
        sender.tell(FIRST)
        await sender.aclose()
        assert len(hook.requests) == 1
    assert lines[1] == ("alert_not_sent", {"id": "a", "reason": "status 500"})


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MAX_WAITING", 2)
    async with MockUpstream(Answer(), Answer()) as hook:
        sender, lines = built(hook.base_url)
        for _ in range(3):
            sender.tell(FIRST)
        await sender.aclose()
        assert len(hook.requests) == 2
    assert lines[-1] == ("alert_not_sent", {"id": "a", "reason": "too many wait"})


async def until_posted(sender: AlertWebhook) -> None:
    assert sender.posting is not None
    await sender.posting
