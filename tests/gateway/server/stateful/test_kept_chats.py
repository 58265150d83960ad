"""Chat completions that are kept, with the official SDK as the client."""

import asyncio
from typing import Any

import openai
import pytest

from adapters.canonical.events import ChoiceFinished, TextDelta
from adapters.canonical.stop_reason import StopReason
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, chat, error_of, running, text
from tests.gateway.server.stateful.responding import KEYS, ONE_TRY, client

pytestmark = pytest.mark.timeout(60)
HI: Any = [{"role": "user", "content": "hi"}]


async def refused(gateway: Running, method: str, path: str, **options: Any) -> tuple[int, dict[str, object]]:
    async with gateway.session.request(method, f"{gateway.url}/v1/chat/completions{path}", **options) as answer:
        return answer.status, await error_of(answer)


async def test_a_completion_is_kept_where_the_client_asks_for_it() -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider) as gateway, client(gateway) as sdk:
        create = sdk.chat.completions.create
        made = await create(model="fake/m", messages=HI, store=True, metadata={"a": "b"})
        found = await sdk.chat.completions.retrieve(made.id)
        assert found.to_dict() == {**made.to_dict(), "metadata": {"a": "b"}}
        other = await create(model="fake/m", messages=HI)
        with pytest.raises(openai.NotFoundError):
            await sdk.chat.completions.retrieve(other.id)
    assert (provider.requests[0].store, provider.requests[0].metadata) == (None, None)


async def test_a_stream_is_kept_as_the_whole_answer_that_it_is() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        stream = await sdk.chat.completions.create(model="fake/m", messages=HI, store=True, stream=True)
        chunks = [chunk async for chunk in stream]
        found = await sdk.chat.completions.retrieve(chunks[0].id)
        assert found.choices[0].message.content == "Hello there"
        assert (found.choices[0].finish_reason, found.created) == ("stop", chunks[0].created)
        assert found.usage is not None


async def test_a_stream_that_breaks_is_not_kept() -> None:
    broken = ScriptedProvider("fake", [text("par"), RuntimeError("bug")])
    async with running(broken, extra=ONE_TRY) as gateway:
        async with gateway.post(chat(store=True, stream=True)) as answer:
            assert b"internal error" in await answer.read()
        async with gateway.session.get(f"{gateway.url}/v1/chat/completions") as answer:
            assert (await answer.json())["data"] == []


async def test_completions_are_listed_by_metadata_and_model() -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider, extra="models: {fast: fake/m}\n") as gateway, client(gateway) as sdk:
        ask = sdk.chat.completions.create
        made = [await ask(model="fake/m", messages=HI, store=True, metadata={"n": str(n)}) for n in range(3)]
        fast = await ask(model="fast", messages=HI, store=True)

        async def ids(**options: Any) -> set[str]:
            return {found.id async for found in sdk.chat.completions.list(**options)}

        assert await ids() == {*(one.id for one in made), fast.id}
        assert await ids(limit=1) == await ids()
        assert await ids(metadata={"n": "1"}) == {made[1].id}
        assert await ids(metadata={"n": "x"}) == set()
        assert await ids(model="fast") == {fast.id}
        page = await sdk.chat.completions.list(limit=3, order="desc")
        assert (len(page.data), page.has_more) == (3, True)


async def test_its_messages_are_listed_changed_and_deleted() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        parts: Any = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        messages: Any = [{"role": "system", "content": "be"}, {"role": "user", "content": parts}]
        made = await sdk.chat.completions.create(model="fake/m", messages=messages, store=True)
        listed = [found async for found in sdk.chat.completions.messages.list(made.id)]
        assert [(found.role, found.content) for found in listed] == [("system", "be"), ("user", "ab")]
        assert listed[0].content_parts is None
        assert [part.to_dict() for part in listed[1].content_parts or ()] == parts
        assert [found.id for found in listed] == [f"{made.id}-0", f"{made.id}-1"]
        changed = await sdk.chat.completions.update(made.id, metadata={"x": "y"})
        assert changed.to_dict()["metadata"] == {"x": "y"}
        assert await sdk.chat.completions.retrieve(made.id) == changed
        bare = await sdk.chat.completions.update(made.id, metadata=None)
        assert bare.to_dict()["metadata"] == {}
        gone = await sdk.chat.completions.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "chat.completion.deleted", True)
        with pytest.raises(openai.NotFoundError):
            await sdk.chat.completions.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.chat.completions.messages.list(made.id)


async def test_another_keys_completion_is_not_there() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=KEYS) as gateway, client(gateway, "s-ann") as ann:
        made = await ann.chat.completions.create(model="fake/m", messages=HI, store=True)
        headers = {"authorization": "Bearer s-bob"}
        for method, rest in (("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/messages")):
            assert (await refused(gateway, method, f"/{made.id}{rest}", headers=headers))[0] == 404
        async with gateway.session.get(f"{gateway.url}/v1/chat/completions", headers=headers) as answer:
            assert (await answer.json())["data"] == []


async def test_what_is_wrong_is_named() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.chat.completions.create(model="fake/m", messages=HI, store=True)
        status, error = await refused(gateway, "POST", "", json=chat(store=True, metadata={"a": 1}))
        assert (status, error["param"]) == (400, "metadata")
        for method, path, status in (
            ("GET", f"/{made.id}/other", 404),
            ("POST", f"/{made.id}/messages", 405),
            ("DELETE", f"/{made.id}/messages", 405),
            ("PUT", "", 405),
            ("GET", "?limit=x", 400),
        ):
            assert (await refused(gateway, method, path))[0] == status


async def test_the_choices_of_one_answer_are_kept_together() -> None:
    script = [[TextDelta(n, 0, f"c{n}"), ChoiceFinished(n, StopReason.STOP)] for n in range(2)]
    async with running(ScriptedProvider("fake", script)) as gateway, client(gateway) as sdk:  # type: ignore[arg-type]
        made = await sdk.chat.completions.create(model="fake/m", messages=HI, store=True, n=2)
        found = await sdk.chat.completions.retrieve(made.id)
        assert [choice.message.content for choice in found.choices] == ["c0", "c1"]


async def test_the_synchronous_sdk_works_as_well() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:

        def use() -> bool:
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0) as sdk:
                made = sdk.chat.completions.create(model="fake/m", messages=HI, store=True)
                return [found.id for found in sdk.chat.completions.list()] == [made.id]

        assert await asyncio.to_thread(use)
