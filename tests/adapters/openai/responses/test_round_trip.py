"""Laws over generated conversations: what the upstream side writes, the client side reads as the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    USER,
    Audio,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.canonical.request import Namespace, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from adapters.openai.responses.upstream import ResponsesUpstream
from tests.adapters.openai.responses.exchange import front_of

RESPONSES = "openai.responses"
WORD = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=6)
NAME = st.text(alphabet="abc_", min_size=1, max_size=6)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


texts = st.builds(Text, text=WORD)
given_parts = (
    texts
    | st.builds(Image, source=st.builds(MediaSource, url=WORD), detail=st.just("low"))
    | st.builds(Image, source=st.builds(MediaSource, file_id=WORD), detail=st.just("high"))
    | st.builds(File, source=st.builds(MediaSource, data=WORD), filename=maybe(WORD))
    | st.builds(File, source=st.builds(MediaSource, url=WORD))
    | st.builds(Audio, source=st.builds(MediaSource, data=WORD), format=maybe(st.just("wav")))
)
opaque = st.builds(
    lambda raw: Opaque(type="x_call", raw=b'{"type":"x_call","n":%d}' % raw, origin=RESPONSES), st.integers()
)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """What a user said, the one turn of the assistant after it, and the results of its calls."""
    found = [Message(role=USER, parts=tuple(draw(st.lists(given_parts, min_size=1, max_size=3))))]
    parts: list[Part] = draw(st.lists(st.builds(Reasoning, text=WORD), max_size=1))
    parts += draw(st.lists(opaque, max_size=1))
    parts += draw(st.lists(texts | st.builds(Refusal, text=WORD), max_size=2))
    has_text = any(isinstance(part, Text | Refusal) for part in parts)
    kinds = draw(st.lists(st.sampled_from(("function", "custom")), max_size=2))
    calls = [
        ToolCall(id=f"c{number}_{i}", name=draw(NAME), arguments=draw(WORD), kind=kind) for i, kind in enumerate(kinds)
    ]
    if parts or calls:
        phase = draw(maybe(st.just("commentary"))) if has_text else None
        found.append(Message(role=ASSISTANT, parts=(*parts, *calls), phase=phase))
    for call in calls:
        if call.kind == "function":
            found.append(
                Message(role=TOOL, parts=(ToolResult(call_id=call.id, parts=tuple(draw(st.lists(texts, max_size=2)))),))
            )
    return found


functions = st.builds(
    Tool,
    kind=st.just("function"),
    name=NAME,
    description=maybe(WORD),
    parameters=maybe(st.just(b'{"type":"object"}')),
    strict=maybe(st.booleans()),
)
customs = st.builds(
    Tool,
    kind=st.just("custom"),
    name=NAME,
    description=maybe(WORD),
    grammar=maybe(st.just(b'{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}')),
)


def in_namespace(tool: Tool) -> Tool:
    return Tool(
        kind=tool.kind,
        name=f"ns__{tool.name}",
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
        grammar=tool.grammar,
        namespace=Namespace(name="ns", description="d"),
    )


tool_lists = st.tuples(
    st.lists(functions | customs, min_size=1, max_size=2), st.lists((functions | customs).map(in_namespace), max_size=2)
).map(lambda pair: (*pair[0], *pair[1]))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    system = draw(maybe(WORD))
    messages = [] if system is None else [Message(role="system", parts=(Text(text=system),))]
    for number in range(draw(st.integers(1, 3))):
        messages += draw(turns(number))
    tools = draw(maybe(tool_lists))
    schema = OutputFormat(
        kind="json_schema",
        name="n",
        schema=b"{}",
        path="text.format.schema",
        raw=b'{"type":"json_schema","name":"n","schema":{}}',
    )
    return Request(
        model=draw(NAME),
        dialect=RESPONSES,
        stream=draw(st.booleans()),
        messages=tuple(messages),
        tools=tools,
        tool_choice=draw(maybe(st.sampled_from((ToolChoice(mode="auto"), ToolChoice(mode="none"))))),
        parallel_tool_calls=draw(maybe(st.booleans())),
        output_format=draw(maybe(st.just(schema))),
        sampling=Sampling(
            temperature=draw(maybe(st.floats(0, 2))),
            top_k=draw(maybe(st.integers(-1, 99))),
            stop=draw(maybe(st.just(("a", "b")))),
            logit_bias=draw(maybe(st.just({7: 1.5}))),
        ),
        max_tokens=draw(maybe(st.integers(1, 99))),
        logprobs=draw(maybe(st.integers(0, 20))),
        reasoning=draw(maybe(st.builds(ReasoningOptions, effort=st.just("none"), summary=maybe(st.just("auto"))))),
        verbosity=draw(maybe(st.just("low"))),
        truncation=draw(maybe(st.just("auto"))),
        service_tier=draw(maybe(st.just("flex"))),
        extras=draw(st.sampled_from(({}, {"later": b'{"x":1.50}'}))),
    )


@settings(max_examples=200)
@given(requests())
def test_a_request_that_is_written_is_read_as_it_was(request: Request) -> None:
    body = ResponsesUpstream("up").render_request(request)
    found = front_of().parse(body, max_depth=64)
    for name in Request.__struct_fields__:
        if name not in ("mirrored", "message_paths"):
            assert getattr(found, name) == getattr(request, name), name
