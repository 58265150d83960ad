"""Laws over generated requests: what the upstream side writes, the client side reads as the same request."""

import json
from typing import Any, get_args

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    Audio,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import (
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TemplateOptions,
    Tool,
    ToolChoice,
)
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.openai.vocabulary import CHAT, COMPLETIONS

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)
NAME = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=6)
TOKEN = st.integers(0, 2**31 - 1)
FRACTION = st.floats(0, 1)
OBJECT = st.dictionaries(TEXT, TEXT | st.integers(-(10**30), 10**30), max_size=2).map(lambda v: json.dumps(v).encode())
# A name that no field of the dialect has. It may hold a dot, as long as what stands before it is no kind of object.
UNKNOWN = st.builds("x{}".format, TEXT)
FIELDS = st.dictionaries(UNKNOWN, OBJECT, min_size=1, max_size=2)
EXTRAS = st.none() | st.builds(ProviderData, st.just(CHAT), FIELDS)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def inner_extras(kind: str) -> st.SearchStrategy[ProviderData | None]:
    """Unknown fields of a part and of the object of its kind inside it."""
    names = UNKNOWN | st.builds((kind + ".{}").format, UNKNOWN)
    return maybe(st.builds(ProviderData, st.just(CHAT), st.dictionaries(names, OBJECT, min_size=1, max_size=3)))


def media(**sources: Any) -> st.SearchStrategy[MediaSource]:
    return st.builds(MediaSource, **sources)


texts = st.builds(Text, text=NAME, provider_data=EXTRAS)
contents = (
    texts
    | st.builds(Image, source=media(url=TEXT), detail=maybe(st.just("low")), provider_data=inner_extras("image_url"))
    | st.builds(Video, source=media(url=TEXT), provider_data=inner_extras("video_url"))
    | st.builds(Audio, source=media(data=TEXT), format=maybe(TEXT), provider_data=inner_extras("input_audio"))
    | st.builds(
        File,
        source=media(data=maybe(TEXT), file_id=maybe(TEXT)),
        filename=maybe(TEXT),
        provider_data=inner_extras("file"),
    )
    | st.builds(
        lambda kind, raw: Opaque(type=kind, raw=b'{"type":%b,"z":%b}' % (orjson.dumps(kind), raw), origin=CHAT),
        st.builds("x{}".format, TEXT),
        OBJECT,
    )
)
calls = st.builds(ToolCall, id=NAME, name=NAME, arguments=TEXT, provider_data=inner_extras("function")) | st.builds(
    ToolCall, id=NAME, name=NAME, arguments=TEXT, kind=st.just("custom"), provider_data=inner_extras("custom")
)
DETAILS = st.lists(OBJECT, min_size=1, max_size=2).map(
    lambda rows: ProviderData(CHAT, {"reasoning_details": b"[%b]" % b",".join(rows)})
)
reasonings = st.builds(Reasoning, text=NAME, provider_data=maybe(DETAILS)) | st.builds(Reasoning, provider_data=DETAILS)


@st.composite
def assistant_parts(draw: st.DrawFn) -> tuple[Part, ...]:
    """In the order that chat has for them: reasoning, content, refusal, audio, calls."""
    parts: list[Part] = draw(st.lists(reasonings, max_size=1))
    parts += draw(st.lists(texts, max_size=2))
    parts += draw(st.lists(st.builds(Refusal, text=NAME), max_size=1))
    audio = st.builds(Audio, source=st.just(MediaSource()), id=NAME, provider_data=st.none())
    parts += draw(st.lists(audio, max_size=1))
    parts += draw(st.lists(calls, max_size=2))
    return tuple(parts)


results = st.builds(
    lambda call_id, parts: (ToolResult(call_id=call_id, parts=tuple(parts)),), NAME, st.lists(texts, max_size=2)
)
roles = st.sampled_from(["user", "system", "developer", "critic"])
messages = (
    st.builds(Message, role=roles, parts=st.lists(contents, max_size=3).map(tuple), name=maybe(NAME), extras=EXTRAS)
    | st.builds(Message, role=st.just(ASSISTANT), parts=assistant_parts(), name=maybe(NAME), extras=EXTRAS)
    | st.builds(Message, role=st.just(TOOL), parts=results, name=maybe(NAME), extras=EXTRAS)
)
samplings = st.builds(
    Sampling,
    temperature=maybe(st.floats(0, 2)),
    top_p=maybe(FRACTION),
    top_k=maybe(st.integers(-1, 100)),
    min_p=maybe(FRACTION),
    top_p_min=maybe(FRACTION),
    typical_p=maybe(FRACTION),
    repetition_penalty=maybe(st.floats(0.01, 10)),
    presence_penalty=maybe(st.floats(-2, 2)),
    frequency_penalty=maybe(st.floats(-2, 2)),
    logit_bias=maybe(st.dictionaries(TOKEN, st.integers(-100, 100) | st.floats(-100, 100), min_size=1, max_size=3)),
    seed=maybe(st.integers(-(2**63), 2**63 - 1)),
    stop=maybe(st.lists(NAME, min_size=1, max_size=3).map(tuple)),
    stop_token_ids=maybe(st.lists(TOKEN, max_size=3).map(tuple)),
    include_stop=maybe(st.booleans()),
    ignore_eos=maybe(st.booleans()),
    min_tokens=maybe(st.integers(0, 10)),
    bad_words=maybe(st.lists(TEXT, max_size=2).map(tuple)),
    allowed_token_ids=maybe(st.lists(TOKEN, max_size=3).map(tuple)),
    use_beam_search=maybe(st.booleans()),
    length_penalty=maybe(st.floats(-10, 10)),
    early_stopping=maybe(st.booleans()),
    skip_special_tokens=maybe(st.booleans()),
    spaces_between_special_tokens=maybe(st.booleans()),
)
SHARED: dict[str, Any] = {
    "model": NAME,
    "sampling": samplings,
    "n": maybe(st.integers(1, 3)),
    "best_of": maybe(st.integers(3, 5)),
    "logprobs": maybe(st.integers(0, 20)),
    "prompt_logprobs": maybe(st.integers(0, 20)),
    "truncate_prompt_tokens": maybe(st.integers(1, 9)),
    "return_token_ids": maybe(st.booleans()),
    "detokenize": maybe(st.booleans()),
    "echo": maybe(st.booleans()),
    "priority": maybe(st.integers(-5, 5)),
    "cache_salt": maybe(TEXT),
    "user": maybe(TEXT),
    "extras": st.just({}) | FIELDS,
}


@st.composite
def tools_and_choice(draw: st.DrawFn) -> dict[str, Any]:
    function = st.builds(
        Tool,
        kind=st.just("function"),
        name=NAME,
        description=maybe(TEXT),
        parameters=maybe(OBJECT),
        strict=maybe(st.booleans()),
        extras=inner_extras("function"),
    )
    custom = st.builds(
        Tool,
        kind=st.just("custom"),
        name=NAME,
        description=maybe(TEXT),
        grammar=maybe(OBJECT),
        extras=inner_extras("custom"),
    )
    hosted = st.builds(
        lambda kind: Tool(kind="hosted", name=kind, raw=b'{"type":%b , "z":1.0}' % orjson.dumps(kind)),
        st.builds("x{}".format, TEXT),
    )
    tools = draw(st.lists(function | custom | hosted, min_size=1, max_size=3))
    choices = st.sampled_from([ToolChoice(mode=mode) for mode in ("none", "auto", "required")])
    named = [ToolChoice(mode="required", name=tool.name, kind=tool.kind) for tool in tools if tool.kind != "hosted"]
    if named:
        choices |= st.sampled_from(named)
    choices |= st.builds(ToolChoice, mode=st.just("auto"), allowed=st.lists(OBJECT, max_size=2).map(tuple))
    found: dict[str, Any] = {"tools": tuple(tools), "tool_choice": draw(maybe(choices))}
    return found


@st.composite
def output_formats(draw: st.DrawFn) -> OutputFormat:
    if draw(st.booleans()):
        return OutputFormat(kind="json_object", path="response_format", raw=b'{"type" : "json_object"}')
    name, schema = draw(NAME), draw(OBJECT)
    raw = b'{"type":"json_schema","json_schema":{"name":%b,"schema":%b,"x":1}}' % (orjson.dumps(name), schema)
    path = "response_format.json_schema.schema"
    return OutputFormat(kind="json_schema", name=name, schema=schema, path=path, raw=raw)


def group(struct: type[Any], **values: Any) -> st.SearchStrategy[Any]:
    """A group of options, None when none of them is set."""
    return st.builds(struct, **values).map(lambda found: None if found == struct() else found)


@st.composite
def chats(draw: st.DrawFn) -> Request:
    values = {name: draw(strategy) for name, strategy in SHARED.items()}
    values |= draw(tools_and_choice()) if draw(st.booleans()) else {}
    return Request(
        dialect=CHAT,
        messages=tuple(draw(st.lists(messages, min_size=1, max_size=3))),
        max_tokens=draw(maybe(st.integers(1, 100))),
        parallel_tool_calls=draw(maybe(st.booleans())),
        modalities=draw(maybe(st.lists(TEXT, max_size=2).map(tuple))),
        metadata=draw(maybe(OBJECT)),
        audio=draw(maybe(OBJECT)),
        verbosity=draw(maybe(TEXT)),
        store=draw(maybe(st.booleans())),
        output_format=draw(maybe(output_formats())),
        reasoning=draw(
            group(ReasoningOptions, effort=maybe(TEXT), include=maybe(st.booleans()), budget_tokens=maybe(TOKEN))
        ),
        template=draw(group(TemplateOptions, chat_template=maybe(TEXT), kwargs=maybe(OBJECT))),
        **values,
    )


prompts = st.lists(TEXT | st.lists(TOKEN, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
completions = st.builds(
    Request,
    dialect=st.just(COMPLETIONS),
    prompts=prompts,
    suffix=maybe(TEXT),
    max_tokens=maybe(st.integers(0, 9)),
    **SHARED,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(chats())
def test_a_chat_request_that_was_sent_on_is_read_as_the_same_request(request: Request) -> None:
    assert ChatFront().parse(ChatUpstream().render_request(request), max_depth=64) == request


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(completions)
def test_a_legacy_request_that_was_sent_on_is_read_as_the_same_request(request: Request) -> None:
    assert CompletionsFront().parse(CompletionsUpstream().render_request(request), max_depth=64) == request


def test_the_generated_parts_are_all_that_chat_can_express() -> None:
    made = {Text, Image, Video, Audio, File, Opaque, Reasoning, Refusal, ToolCall, ToolResult}
    assert {part.__name__ for part in get_args(Part) if part not in made} == {"Document"}
