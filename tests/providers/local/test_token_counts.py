"""The local provider counts a prompt as it would answer it: template, tools and all."""

from contextlib import aclosing

from adapters.canonical.events import UsageReported
from adapters.canonical.messages import SYSTEM, USER, Message, Text
from adapters.canonical.request import Request, Tool
from providers.abilities import TokenCounter
from providers.base import ProviderSettings
from providers.local.provider import LocalProvider
from tests.cases.stage import Local


async def test_a_count_is_the_prompts_usage_in_an_answer() -> None:
    local = Local()
    local.says("ok")
    options = {"models": {"tiny": {"source": "scripted"}}}
    provider = LocalProvider(ProviderSettings(name="local", type="local", options=options), load=local.load)
    assert isinstance(provider, TokenCounter)
    await provider.start()
    messages = (Message(role=SYSTEM, parts=(Text(text="Be kind."),)), Message(role=USER, parts=(Text(text="hi"),)))
    tools = (Tool(kind="function", name="get_weather", parameters=b'{"type":"object"}'),)
    asked = Request(model="tiny", dialect="anthropic.messages", messages=messages, tools=tools, max_tokens=5)
    try:
        counted = await provider.count_tokens(asked)
        assert local.engine.requests == []
        async with aclosing(provider.stream(asked)) as batches:
            events = [event async for batch in batches for event in batch]
    finally:
        await provider.aclose()
    reported = [event.usage.prompt_tokens for event in events if isinstance(event, UsageReported)]
    assert reported
    assert {*counted} == {*reported}
    assert counted[0] > len("Be kind.hi")
