"""Conversations, with the official SDK as the client."""

import asyncio
from typing import Any

import openai
import pytest

from adapters.canonical.events import ChoiceFinished, ReasoningDelta, TextDelta
from adapters.canonical.messages import Message, Text
from adapters.canonical.stop_reason import StopReason
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, error_of, running, text
from tests.gateway.server.stateful.responding import KEYS, ONE_TRY, answers, body, client

pytestmark = pytest.mark.timeout(60)
USER: Any = {"type": "message", "role": "user", "content": "hi"}


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": one} for one in texts]


async def texts_in(sdk: openai.AsyncOpenAI, conversation_id: str, **options: Any) -> list[str]:
    items = [item async for item in sdk.conversations.items.list(conversation_id, **options)]
    return [item.to_dict()["content"][0]["text"] for item in items]  # type: ignore[index]


async def refused(gateway: Running, method: str, path: str, **options: Any) -> tuple[int, dict[str, object]]:
    async with gateway.session.request(method, f"{gateway.url}/v1/conversations{path}", **options) as answer:
        return answer.status, await error_of(answer)


async def test_one_is_made_shown_changed_and_deleted() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.conversations.create(metadata={"topic": "demo"}, items=[USER])
        assert made.id.startswith("conv_")
        assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
        assert await sdk.conversations.retrieve(made.id) == made
        changed = await sdk.conversations.update(made.id, metadata={"topic": "other"})
        assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"topic": "other"})
        assert await sdk.conversations.retrieve(made.id) == changed
        assert (await sdk.conversations.update(made.id, metadata=None)).metadata == {}
        gone = await sdk.conversations.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
        with pytest.raises(openai.NotFoundError):
            await sdk.conversations.retrieve(made.id)
        empty = await sdk.conversations.create()
        assert (empty.metadata, (await sdk.conversations.items.list(empty.id)).data) == ({}, [])


async def test_items_are_added_listed_shown_and_deleted() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.conversations.create(items=said("a", "b"))
        added = await sdk.conversations.items.create(made.id, items=said("c", "d", "e"))
        assert (added.object, len(added.data), added.has_more) == ("list", 3, False)
        assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)
        assert await texts_in(sdk, made.id) == list("edcba")
        assert await texts_in(sdk, made.id, order="asc", limit=2) == list("abcde")
        one = added.data[0].id or ""
        found = await sdk.conversations.items.retrieve(one, conversation_id=made.id)
        assert found == added.data[0]
        left = await sdk.conversations.items.delete(one, conversation_id=made.id)
        assert left.id == made.id
        with pytest.raises(openai.NotFoundError):
            await sdk.conversations.items.retrieve(one, conversation_id=made.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.conversations.items.delete(one, conversation_id=made.id)
        assert await texts_in(sdk, made.id, order="asc") == list("abde")


async def test_an_item_that_is_sent_again_is_listed_once_in_pages_that_end() -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider) as gateway, client(gateway) as sdk:
        talk = await sdk.conversations.create()
        first = await sdk.responses.create(model="fake/m", input="a", conversation=talk.id)
        again: Any = [*first.to_dict()["output"], USER]  # type: ignore[misc]
        await sdk.responses.create(model="fake/m", input=again, conversation=talk.id)
        assert len(provider.requests[-1].messages or ()) == 4
        for order in ("asc", "desc"):
            pages = sdk.conversations.items.list(talk.id, limit=1, order=order)
            seen: list[str] = []
            async for item in pages:
                seen.append(str(item.id))
                assert len(seen) <= 4
            assert len(set(seen)) == len(seen) == 4


async def test_responses_go_on_in_a_conversation() -> None:
    provider = ScriptedProvider("fake", answers("one"), answers("two"), answers("three"))
    async with running(provider) as gateway, client(gateway) as sdk:
        talk = await sdk.conversations.create(items=said("before"))
        first = await sdk.responses.create(model="fake/m", input="a", conversation=talk.id)
        assert first.conversation is not None
        assert first.conversation.id == talk.id
        await sdk.responses.create(model="fake/m", input="b", conversation={"id": talk.id}, store=False)
        made = await sdk.responses.create(model="fake/m", input="c", conversation=talk.id, background=True, stream=True)
        assert [event.type async for event in made][-1] == "response.completed"
        assert await texts_in(sdk, talk.id, order="asc") == ["before", "a", "one", "c", "three"]
        assert (await sdk.responses.retrieve(first.id)).conversation == first.conversation
    users = [[m.role for m in request.messages or ()] for request in provider.requests]
    assert users == [["user"] * 2, ["user", "user", "assistant", "user"], ["user", "user", "assistant", "user"]]
    assert (provider.requests[1].messages or ())[2] == Message(role="assistant", parts=(Text(text="one"),))


async def test_a_failed_turn_leaves_no_trace_in_its_conversation() -> None:
    provider = ScriptedProvider("fake", [text("par"), RuntimeError("bug")])
    async with running(provider, extra=ONE_TRY) as gateway, client(gateway) as sdk:
        talk = await sdk.conversations.create()
        async with gateway.post(body(stream=True, conversation=talk.id), "/v1/responses") as answer:
            assert b"response.failed" in await answer.read()
        assert await texts_in(sdk, talk.id) == []


async def test_reasoning_is_shown_without_its_seal_unless_asked() -> None:
    thought: list[Batch] = [[ReasoningDelta(0, 0, "hm")], [TextDelta(0, 1, "a"), ChoiceFinished(0, StopReason.STOP)]]
    async with running(ScriptedProvider("fake", thought)) as gateway, client(gateway) as sdk:
        talk = await sdk.conversations.create()
        await sdk.responses.create(model="fake/m", input="a", conversation=talk.id)
        sealed: Any = ["reasoning.encrypted_content"]
        for include, has_seal in ((openai.omit, False), (sealed, True)):
            listed = await sdk.conversations.items.list(talk.id, include=include)
            (found,) = [item for item in listed.data if item.type == "reasoning"]
            assert bool(found.encrypted_content) is has_seal
            shown = await sdk.conversations.items.retrieve(found.id, conversation_id=talk.id, include=include)
            assert shown == found


async def test_another_keys_conversation_is_not_there() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=KEYS) as gateway, client(gateway, "s-ann") as ann:
        talk = await ann.conversations.create(items=[USER])
        (item,) = (await ann.conversations.items.list(talk.id)).data
        headers = {"authorization": "Bearer s-bob"}
        for method, path in (
            ("GET", ""),
            ("POST", ""),
            ("DELETE", ""),
            ("GET", "/items"),
            ("POST", "/items"),
            ("GET", f"/items/{item.id}"),
            ("DELETE", f"/items/{item.id}"),
        ):
            assert (await refused(gateway, method, f"/{talk.id}{path}", headers=headers))[0] == 404
        asked = body(conversation=talk.id)
        async with gateway.post(asked, "/v1/responses", headers=headers) as answer:
            assert answer.status == 404
            error = await error_of(answer)
            assert (error["param"], error["code"]) == ("conversation", "conversation_not_found")


async def test_what_is_wrong_is_named() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        talk = await sdk.conversations.create()
        for path, asked, param in (
            ("", {"items": [{"type": "message", "role": "user"}]}, "items[0].content"),
            ("", {"items": [{"id": "msg_nowhere"}]}, "items[0]"),
            ("", {"metadata": {"a": 1}}, "metadata"),
            ("", {"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
            ("", {"other": 1}, "other"),
            (f"/{talk.id}", {}, "metadata"),
            (f"/{talk.id}/items", {"items": []}, "items"),
            (f"/{talk.id}/items", {}, "items"),
        ):
            status, error = await refused(gateway, "POST", path, json=asked)
            assert status == 400
            assert str(error["param"]).startswith(param)
        for method, path, status in (
            ("PUT", f"/{talk.id}", 405),
            ("DELETE", f"/{talk.id}/items", 405),
            ("GET", f"/{talk.id}/other", 404),
            ("GET", "", 405),
        ):
            assert (await refused(gateway, method, path))[0] == status


async def test_the_synchronous_sdk_works_as_well() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:

        def use() -> int:
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0) as sdk:
                talk = sdk.conversations.create(items=[USER])
                sdk.responses.create(model="fake/m", input="b", conversation=talk.id)
                return len(sdk.conversations.items.list(talk.id).data)

        assert await asyncio.to_thread(use) == 3
