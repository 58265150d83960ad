"""What an input comes to: made short by the model, or counted."""

from collections.abc import Sequence
from typing import Any

import openai
import pytest

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import Message, Opaque, Text, text_of
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.usage import Usage
from providers.abilities import Compacted
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, error_of, running
from tests.gateway.server.stateful.responding import KEYS, answers, client

pytestmark = pytest.mark.timeout(60)
TALK: Any = [
    {"role": "user", "content": "my name is Ann"},
    {"role": "assistant", "content": "hello Ann"},
    {"role": "user", "content": "what is my name?"},
]


class Counting(ScriptedProvider):
    """Counts a token for each message."""

    async def count_tokens(self, request: Request) -> Sequence[int]:
        self.requests.append(request)
        return (len(request.messages or ()),)


def said(request: Request) -> list[tuple[str, str]]:
    return [(message.role, text_of(message.parts)) for message in request.messages or ()]


async def test_71_an_input_made_short_goes_on_where_it_was() -> None:
    provider = ScriptedProvider("fake", answers("She is ", "Ann."), answers("Ann"))
    async with running(provider) as gateway, client(gateway) as sdk:
        made = await sdk.responses.compact(model="fake/m", input=TALK, instructions="be exact")
        assert (made.object, [item.type for item in made.output]) == (
            "response.compaction",
            ["message", "message", "compaction"],
        )
        compaction = made.output[-1]
        assert compaction.type == "compaction"
        assert "Ann" not in compaction.encrypted_content
        items: Any = [item.to_dict(warnings=False) for item in made.output]
        again = await sdk.responses.create(model="fake/m", input=[*items, {"role": "user", "content": "so?"}])
    assert again.output_text == "Ann"
    first, second = map(said, provider.requests)
    assert first[:4] == [
        ("system", "be exact"),
        ("user", "my name is Ann"),
        ("assistant", "hello Ann"),
        ("user", "what is my name?"),
    ]
    assert first[4][0] == "user"
    assert first[4][1].startswith("Sum up")
    assert provider.requests[0].max_tokens == 2048  # a model that does not find its end is cut
    assert second == [
        ("user", "my name is Ann"),
        ("user", "what is my name?"),
        ("user", "Summary of the conversation until here:\n\nShe is Ann."),
        ("user", "so?"),
    ]


async def test_71_what_came_before_is_made_short_as_well() -> None:
    provider = ScriptedProvider("fake", answers("one"), answers("sum"))
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="a")
        made = await sdk.responses.compact(model="fake/m", previous_response_id=first.id)
        assert [item.type for item in made.output] == ["message", "compaction"]
    assert said(provider.requests[1])[:2] == [("user", "a"), ("assistant", "one")]


async def test_71_a_compaction_belongs_to_its_key_and_is_made_by_a_model() -> None:
    async with running(ScriptedProvider("fake", answers("sum")), extra=KEYS) as gateway:
        async with client(gateway, "s-ann") as ann:
            made = await ann.responses.compact(model="fake/m", input=TALK)
        async with client(gateway, "s-bob") as bob:
            items: Any = [item.to_dict(warnings=False) for item in made.output]
            with pytest.raises(openai.BadRequestError) as caught:
                await bob.responses.create(model="fake/m", input=items)
            assert caught.value.param == "input[2].encrypted_content"
        headers = {"authorization": "Bearer s-ann"}
        for path in ("compact", "input_tokens"):
            async with gateway.post({"input": "hi"}, f"/v1/responses/{path}", headers=headers) as answer:
                assert answer.status == 400
                assert (await error_of(answer))["param"] == "model"


NATIVE = Capabilities(
    fields=EXPRESSIBLE_FIELDS,
    forwards=frozenset(("openai.responses",)),
    parts=frozenset((Text, Opaque)),
    tool_kinds=frozenset(("function", "hosted", "mcp")),
)


class Compacting(ScriptedProvider):
    """Has a compaction of its own, or finds out that it has none."""

    has_it = True

    async def compact(self, request: Request) -> Compacted:
        self.requests.append(request)
        if not self.has_it:
            raise UnsupportedParameter("none here")
        item = b'{"type":"compaction","id":"cmp_up","encrypted_content":"blob of the upstream"}'
        return Compacted((item,), Usage(prompt_tokens=8, completion_tokens=2))


async def test_an_upstream_that_has_compaction_does_it_and_gets_its_blob_back() -> None:
    provider = Compacting("fake", answers("hi"), capabilities=NATIVE)
    async with running(provider) as gateway, client(gateway) as sdk:
        made = await sdk.responses.compact(model="fake/m", input=TALK)
        assert [item.type for item in made.output] == ["compaction"]
        assert made.usage.total_tokens == 10
        items: Any = [item.to_dict(warnings=False) for item in made.output]
        await sdk.responses.create(model="fake/m", input=[*items, {"role": "user", "content": "so?"}])
        line = gateway.lines()[0]
    assert (line["prompt_tokens"], line["completion_tokens"]) == (8, 2)
    (part,) = (provider.requests[1].messages or ())[0].parts
    assert isinstance(part, Opaque)
    assert b"blob of the upstream" in part.raw


async def test_where_the_upstream_turns_out_to_have_none_the_model_sums_up() -> None:
    provider = Compacting("fake", answers("sum"), capabilities=NATIVE)
    provider.has_it = False
    async with running(provider) as gateway, client(gateway) as sdk:
        made = await sdk.responses.compact(model="fake/m", input=TALK)
    assert [item.type for item in made.output] == ["message", "message", "compaction"]


async def test_a_model_that_says_nothing_makes_no_compaction() -> None:
    async with (
        running(ScriptedProvider("fake", answers(" "))) as gateway,
        gateway.post({"model": "fake/m", "input": "hi"}, "/v1/responses/compact") as answer,
    ):
        assert answer.status == 502


async def test_input_tokens_are_those_of_the_whole_input() -> None:
    provider = Counting("fake", HELLO)
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="a")
        found = await sdk.responses.input_tokens.count(
            model="fake/m", input="b", previous_response_id=first.id, instructions="be brief"
        )
        assert (found.object, found.input_tokens) == ("response.input_tokens", 4)
    assert (provider.requests[1].messages or ())[0] == Message(role="system", parts=(Text(text="be brief"),))


async def test_a_model_whose_tokens_nobody_can_count_is_a_400() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.post({"model": "fake/m", "input": "hi"}, "/v1/responses/input_tokens") as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["param"] == "model"
