"""End users of an application: who one is, and that names cost a client none of the memory of others."""

import pytest

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.request import Request
from gateway.usage import end_users as module
from gateway.usage.end_users import NOBODY, OTHERS, EndUsers, end_user


def asked(**fields: str) -> Request:
    return Request(model="m", dialect="openai", **fields)  # type: ignore[arg-type]


def test_the_header_goes_before_the_body_and_nobody_is_one_user() -> None:
    embedding = EmbeddingRequest(model="m", dialect="openai", inputs=(), user="e")
    assert end_user(asked(user="a"), {"x-gateway-user": "h"}) == "h"
    assert end_user(asked(user="a"), {}) == "a"
    assert end_user(asked(user="a", safety_identifier="s"), {}) == "s"
    assert end_user(embedding, {}) == "e"
    assert [end_user(request, {"x-gateway-user": ""}) for request in (asked(), asked(user=""), None)] == [NOBODY] * 3


@pytest.mark.parametrize("name", ["x" * 129, "a\x00b", "line\nbreak", "\ud800"])
def test_a_name_that_no_table_should_hold_is_told_by_its_hash(name: str) -> None:
    found = end_user(asked(user=name), {})
    assert found.startswith("sha256:")
    assert len(found) == 71
    assert found != end_user(asked(user=f"{name}x"), {})


def test_users_beyond_the_bound_are_one_until_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_USERS", 2)
    monkeypatch.setattr(module, "_MAX_ACCOUNTS", 2)
    time = 1000.0
    users = EndUsers(lambda: time)
    assert [users.counted("k", name) for name in ("a", "b", "c", "a")] == ["a", "b", OTHERS, "a"]
    assert users.counted("other", "c") == "c"
    time += 40
    assert users.counted("k", "a") == "a"
    time += 40
    assert [users.counted("k", name) for name in ("c", "b")] == ["c", OTHERS]
    for number in range(5):
        users.counted(f"account {number}", "a")
    assert len(users._seen) == 2
