"""Law 8: a field that a target lacks is refused by the client's name, or dropped and listed; never in silence."""

from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import fields as struct_fields

from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    Document,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.canonical.request import (
    EXPRESSIBLE_FIELDS,
    LoraAdapter,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TemplateOptions,
    Tool,
    ToolChoice,
    set_fields,
)
from adapters.openai.vocabulary import RESPONSES
from gateway.routing.requirements import Fitted, fit
from providers.base import Capabilities
from providers.custom_tools import with_function_calls

NOTHING = Capabilities(fields=frozenset())
EVERYTHING = Capabilities(fields=EXPRESSIBLE_FIELDS)
USER = (Message(role="user", parts=(Text(text="hi"),)),)
SPECIAL: dict[str, object] = {
    "tools": (Tool(kind="function", name="f"),),
    "tool_choice": ToolChoice(mode="required"),
    "output_format": OutputFormat(kind="json_object"),
    "logit_bias": {1: 1.0},
    "modalities": ("audio",),
    "adapter": LoraAdapter(name="a"),
    "detokenize": False,
    "reasoning.include": False,
    "reasoning.separate": False,
    "parallel_tool_calls": False,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}
GROUPS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "sampling": ("", Sampling),
    "reasoning": ("reasoning.", ReasoningOptions),
    "template": ("template.", TemplateOptions),
}


def request(**fields: object) -> Request:
    return Request(**{"model": "m", "dialect": "chat", "messages": USER, **fields})  # type: ignore[arg-type]


def with_field(name: str) -> Request:
    """A request that asks for this field, with a value that means something."""
    for group, (prefix, type_) in GROUPS.items():
        member = name.removeprefix(prefix)
        hints = {field.name: field.type for field in struct_fields(type_)}
        if name.startswith(prefix) and member in hints:
            return request(
                **{group: type_(**{member: SPECIAL.get(name) if name in SPECIAL else value_for(hints[member])})}
            )
    hints = {field.name: field.type for field in struct_fields(Request)}
    return request(**{name: SPECIAL[name] if name in SPECIAL else value_for(hints[name])})


def value_for(hint: object) -> object:
    wanted = str(hint)
    for word, value in (("bytes", b"{}"), ("tuple[int", (7,)), ("tuple[str", ("x",)), ("bool", True), ("int", 5)):
        if word in wanted:
            return value
    return 0.5 if "float" in wanted else "x"


def spell(name: str) -> str:
    return f"their_{name}"


def fitted(asked: Request, capabilities: Capabilities, *, drop: bool = False, as_chat: bool = False) -> Fitted:
    return fit(asked, capabilities, spell, drop=drop, completions_as_chat=as_chat)


FIELDS = sorted(EXPRESSIBLE_FIELDS - {"messages", "prompts"})
HINTS = [
    "keep_alive_s",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "temperature_last",
    "user",
]
SWITCHED = {
    "dry_allowed_length": "dry_multiplier",
    "dry_base": "dry_multiplier",
    "dry_penalty_last_n": "dry_multiplier",
    "dry_sequence_breakers": "dry_multiplier",
    "dynatemp_exponent": "dynatemp_range",
    "repeat_last_n": "frequency_penalty",
    "xtc_threshold": "xtc_probability",
}
"""Fields of a sampler, and the one that switches it on."""
WISHES = sorted({*FIELDS} - {*HINTS, *SWITCHED, "parallel_tool_calls"})
"""Fields that ask for something by themselves."""


@pytest.mark.parametrize("name", WISHES)
def test_every_field_that_a_target_lacks_is_refused_by_the_clients_name(name: str) -> None:
    asked = with_field(name)
    assert name in set_fields(asked)
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, NOTHING)
    assert caught.value.param == spell(name)
    assert caught.value.status == 400


@pytest.mark.parametrize(("name", "switch"), SWITCHED.items())
def test_a_field_of_a_sampler_asks_for_nothing_while_that_is_off(name: str, switch: str) -> None:
    asked = with_field(name)
    for off in (None, 0.0):
        found = fitted(
            msgspec.structs.replace(asked, sampling=msgspec.structs.replace(asked.sampling, **{switch: off})), NOTHING
        )
        assert (found.dropped, set_fields(found.request)) == ((), ["messages"])
    on = msgspec.structs.replace(asked, sampling=msgspec.structs.replace(asked.sampling, **{switch: 0.5}))
    assert set(fitted(on, NOTHING, drop=True).dropped) == {spell(name), spell(switch)}


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_left_out_and_listed_and_never_refused(name: str) -> None:
    found = fitted(with_field(name), NOTHING)
    assert found.dropped == (spell(name),)
    assert set_fields(found.request) == ["messages"]


@pytest.mark.parametrize(
    ("names", "choice", "asks"),
    [
        ("f", None, True),
        ("f", ToolChoice(mode="auto"), True),
        ("f", ToolChoice(mode="required"), False),
        ("fg", ToolChoice(mode="required"), True),
        ("fg", ToolChoice(mode="required", name="f"), False),
        ("f", ToolChoice(mode="none"), False),
    ],
)
def test_one_call_at_most_asks_for_something_where_the_choice_allows_more(
    names: str, choice: ToolChoice | None, asks: bool
) -> None:
    tools = tuple(Tool(kind="function", name=name) for name in names)
    asked = request(parallel_tool_calls=False, tools=tools, tool_choice=choice)
    found = fitted(asked, Capabilities(fields=frozenset(("tools", "tool_choice"))), drop=True)
    assert found.dropped == (("their_parallel_tool_calls",) if asks else ())


@pytest.mark.parametrize("name", [*WISHES, *HINTS])
def test_every_field_that_a_target_lacks_is_dropped_and_listed_where_that_is_allowed(name: str) -> None:
    found = fitted(with_field(name), NOTHING, drop=True)
    assert found.dropped == (spell(name),)
    assert name not in set_fields(found.request)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_that_a_target_declares_passes_unchanged(name: str) -> None:
    asked = with_field(name)
    assert fitted(asked, EVERYTHING) == Fitted(asked)


@pytest.mark.parametrize(
    "asked",
    [
        request(n=1),
        request(parallel_tool_calls=True),
        request(output_format=OutputFormat(kind="text")),
        request(tool_choice=ToolChoice(mode="auto")),
        request(reasoning=ReasoningOptions(mode="adaptive")),
        request(service_tier="auto", verbosity="medium"),
        request(service_tier="standard_only"),
        request(sampling=Sampling(top_p=1.0, frequency_penalty=0, stop=())),
        request(parallel_tool_calls=False),
    ],
)
def test_a_value_that_asks_for_nothing_is_no_reason_to_refuse(asked: Request) -> None:
    found = fitted(asked, NOTHING)
    assert found.dropped == ()
    assert set_fields(found.request) == ["messages"]


@pytest.mark.parametrize(
    "options",
    [ReasoningOptions(effort="none"), ReasoningOptions(budget_tokens=0), ReasoningOptions(mode="disabled")],
)
def test_not_to_think_asks_for_nothing_of_a_model_that_never_does(options: ReasoningOptions) -> None:
    asked = request(reasoning=options)
    found = fitted(asked, Capabilities(fields=frozenset(), thinks=False))
    assert (found.dropped, set_fields(found.request)) == ((), ["messages"])
    with pytest.raises(UnsupportedParameter):
        fitted(asked, NOTHING)  # which may think aloud
    with pytest.raises(UnsupportedParameter):
        fitted(request(reasoning=ReasoningOptions(effort="low")), Capabilities(fields=frozenset(), thinks=False))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (ReasoningOptions(effort="none"), "their_reasoning.effort"),
        (ReasoningOptions(budget_tokens=0), "their_reasoning.budget_tokens"),
        (ReasoningOptions(mode="disabled"), "their_reasoning.mode"),
    ],
)
def test_not_to_think_is_more_than_a_model_that_always_does_can_do(options: ReasoningOptions, name: str) -> None:
    asked, thinker = request(reasoning=options), replace(EVERYTHING, always_thinks=True)
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, thinker)
    assert caught.value.param == name
    found = fitted(asked, thinker, drop=True)
    assert found.dropped == (name,)
    assert found.request.reasoning in (None, ReasoningOptions())
    assert fitted(asked, replace(thinker, forwards=frozenset({"chat"}))) == Fitted(asked)
    assert fitted(request(reasoning=ReasoningOptions(effort="low")), thinker).dropped == ()


def test_what_excludes_thoughts_is_refused_beside_the_wish_for_them_unless_it_says_nothing() -> None:
    target = replace(EVERYTHING, not_while_thinking=frozenset(("temperature", "top_p")))
    cold = request(sampling=Sampling(temperature=0, top_p=1), reasoning=ReasoningOptions(effort="high"))
    with pytest.raises(UnsupportedParameter, match="their_temperature: not supported by the model 'm' while it thinks"):
        fitted(cold, target)
    found = fitted(cold, target, drop=True)
    assert (found.dropped, found.request.sampling) == (("their_temperature",), Sampling())
    assert fitted(cold, replace(target, forwards=frozenset({"chat"}))) == Fitted(cold)
    for options in (None, ReasoningOptions(effort="none"), ReasoningOptions(budget_tokens=0)):
        assert fitted(request(sampling=Sampling(temperature=0), reasoning=options), target).dropped == ()


def test_unmapped_fields_pass_to_a_target_of_the_same_dialect() -> None:
    asked = request(extras={"brand_new": b"1"})
    assert fitted(asked, Capabilities(fields=frozenset(), forwards=frozenset({"chat"}))).request is asked


def test_unmapped_fields_are_refused_by_name_elsewhere() -> None:
    with pytest.raises(UnsupportedParameter, match="brand_new"):
        fitted(request(extras={"brand_new": b"1"}), EVERYTHING)


def test_unmapped_fields_of_a_message_are_named_with_their_place() -> None:
    extras = ProviderData("chat", {"weight": b"0"})
    asked = request(messages=(*USER, Message(role="user", parts=USER[0].parts, extras=extras)))
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, EVERYTHING)
    assert caught.value.param == "their_messages[1].weight"
    dropped = fitted(asked, EVERYTHING, drop=True)
    assert dropped.dropped == ("their_messages[1].weight",)
    assert dropped.request.messages is not None
    assert dropped.request.messages[1].extras is None


@pytest.mark.parametrize("inside", [False, True])
def test_a_part_that_the_target_cannot_take_is_never_dropped(inside: bool) -> None:
    image = Image(source=MediaSource(url="https://example.com/x.png"))
    part: Part = ToolResult(call_id="c", parts=(image,)) if inside else image
    asked = request(messages=(*USER, Message(role="tool" if inside else "user", parts=(part,))))
    with pytest.raises(UnsupportedParameter, match="image") as caught:
        fitted(asked, EVERYTHING, drop=True)
    assert caught.value.param == "their_messages[1]"


def test_thoughts_of_earlier_turns_go_only_to_targets_that_take_thoughts() -> None:
    said = Text(text="4")
    asked = request(messages=(*USER, Message(role="assistant", parts=(Reasoning(text="2+2", signature="s"), said))))
    assert fitted(asked, EVERYTHING).request.messages == (*USER, Message(role="assistant", parts=(said,)))
    takes = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Reasoning)))
    assert fitted(asked, takes).request == asked


def test_a_kind_of_tool_that_the_target_lacks_is_named_by_its_place() -> None:
    tools = (Tool(kind="function", name="f"), Tool(kind="hosted", name="c"))
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(tools=tools), EVERYTHING)
    assert caught.value.param == "their_tools[1]"
    found = fitted(request(tools=tools), EVERYTHING, drop=True)
    assert found.request.tools == tools[:1]
    assert found.dropped == ("their_tools[1]",)


def test_a_tool_of_another_dialect_that_the_upstream_would_run_is_named_by_its_place() -> None:
    tools = (Tool(kind="function", name="f"), Tool(kind="hosted", name="web_search", raw=b"{}"))
    runs_its_own = replace(EVERYTHING, tool_kinds=frozenset(("function", "hosted")), forwards=frozenset(("messages",)))
    assert fitted(request(tools=tools, dialect="messages"), runs_its_own).dropped == ()
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(tools=tools), runs_its_own)
    assert caught.value.param == "their_tools[1]"
    found = fitted(request(tools=tools), runs_its_own, drop=True)
    assert (found.request.tools, found.dropped) == (tools[:1], ("their_tools[1]",))


def test_a_custom_tool_is_a_function_where_the_target_knows_no_other() -> None:
    call = ToolCall(id="a", name="c", arguments="text", kind="custom")
    said = (*USER, Message(role="assistant", parts=(call,)))
    choice = ToolChoice(mode="required", name="c", kind="custom")
    asked = request(messages=said, tools=(Tool(kind="custom", name="c"),), tool_choice=choice)
    found = fitted(asked, EVERYTHING)
    assert found.dropped == ()
    assert [(tool.kind, tool.name) for tool in found.request.tools or ()] == [("function", "c")]
    assert found.request.tool_choice == ToolChoice(mode="required", name="c")
    assert found.request.messages == with_function_calls(said)
    assert found.request.messages != said
    knows = replace(EVERYTHING, tool_kinds=frozenset(("custom",)))
    assert fitted(asked, knows).request == asked


def test_a_grammar_that_the_target_does_not_hold_an_input_to_is_named_by_its_place() -> None:
    grammar = b'{"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x/"}}'
    asked = request(tools=(Tool(kind="custom", name="c", grammar=grammar),))
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, EVERYTHING)
    assert caught.value.param == "their_tools[0].format"
    found = fitted(asked, EVERYTHING, drop=True)
    assert found.dropped == ("their_tools[0].format",)
    (tool,) = found.request.tools or ()
    assert (tool.kind, tool.grammar) == ("function", None)
    assert b"start: /x/" in (tool.parameters or b"")


def test_a_cache_hint_of_chat_that_was_read_is_no_field_that_a_target_lacks() -> None:
    hints = ProviderData("openai.chat", {"cache_control": b"{}", "function.cache_control": b"{}"})
    asked = request(
        dialect="openai.chat",
        messages=(msgspec.structs.replace(USER[0], extras=hints),),
        tools=(Tool(kind="function", name="f", extras=hints),),
    )
    assert fitted(asked, EVERYTHING) == Fitted(asked)
    odd = ProviderData("openai.chat", {"cache_control": b"{}", "odd": b"1"})
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(tools=(Tool(kind="function", name="f", extras=odd),)), EVERYTHING)
    assert caught.value.param == "their_tools[0].odd"


def test_a_tool_choice_does_not_outlive_the_last_tool() -> None:
    asked = request(tools=(Tool(kind="hosted", name="c"),), tool_choice=ToolChoice(mode="required"))
    found = fitted(asked, EVERYTHING, drop=True)
    assert (found.request.tools, found.request.tool_choice) == (None, None)


def test_a_prompt_for_a_chat_model_is_refused_by_name_unless_the_operator_allows_it() -> None:
    asked = request(messages=None, prompts=("once upon",))
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, EVERYTHING)
    assert caught.value.param == "their_prompts"
    converted = fitted(asked, EVERYTHING, as_chat=True).request
    assert converted.prompts is None
    assert converted.messages == (Message(role="user", parts=(Text(text="once upon"),)),)


@pytest.mark.parametrize("prompts", [((1, 2),), ("a", "b")])
def test_token_ids_and_several_prompts_do_not_become_a_message(prompts: tuple[object, ...]) -> None:
    with pytest.raises(UnsupportedParameter):
        fitted(request(messages=None, prompts=prompts), EVERYTHING, as_chat=True)


def test_messages_for_a_model_without_chat_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(), Capabilities(fields=EXPRESSIBLE_FIELDS, messages=False, prompts=True))
    assert caught.value.param == "their_messages"


FOREIGN = Opaque(type="computer_call", raw=b"{}", origin="responses")


def test_a_part_of_another_dialect_is_refused_at_its_place_in_the_body_or_dropped_and_listed() -> None:
    taken = Capabilities(fields=EXPRESSIBLE_FIELDS, forwards=frozenset({"chat"}), parts=frozenset((Text, Opaque)))
    mixed = Message(role="assistant", parts=(Text(text="a"), FOREIGN))
    asked = request(
        messages=(*USER, Message(role="assistant", parts=(FOREIGN,)), mixed), message_paths=("in[0]", "in[4]", "in[5]")
    )
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, taken)
    assert caught.value.param == "in[4]"
    found = fitted(asked, taken, drop=True)
    assert found.dropped == ("in[4]", "in[5]")
    assert found.request.messages == (*USER, Message(role="assistant", parts=(Text(text="a"),)))
    assert found.request.message_paths == ("in[0]", "in[5]")
    own = Capabilities(fields=EXPRESSIBLE_FIELDS, forwards=frozenset({"responses"}), parts=frozenset((Text, Opaque)))
    assert fitted(asked, own).request == asked


def test_a_line_for_the_vendors_books_is_left_out_elsewhere_and_never_refused() -> None:
    line = Opaque(type="x-anthropic-billing-header", raw=b"{}", origin=MESSAGES)
    system = Message(role="system", parts=(line, Text(text="Be kind.")))
    asked = request(messages=(system, *USER), message_paths=("system", "messages[0]"), dialect=MESSAGES)
    found = fitted(asked, EVERYTHING)
    assert found.dropped == ("system.x-anthropic-billing-header",)
    assert found.request.messages == (Message(role="system", parts=(Text(text="Be kind."),)), *USER)
    vendor = replace(EVERYTHING, forwards=frozenset({MESSAGES}), parts=EVERYTHING.parts | {Opaque})
    assert fitted(asked, vendor) == Fitted(asked)


@pytest.mark.parametrize(
    ("output", "told"),
    [(b'"Win"', "goal: Win"), (b'[{"type":"input_text","text":"Win"},{"type":"input_image"}]', "goal: Win\n")],
    ids=["text", "parts"],
)
def test_an_output_that_no_call_asked_for_is_told_as_text(output: bytes, told: str) -> None:
    raw = b'{"type":"function_call_output","name":"goal","namespace":"agent","output":%b}' % output
    asked = request(messages=(Message(role="user", parts=(Opaque(type="x", raw=raw, origin=RESPONSES),)),))
    found = fitted(asked, EVERYTHING)
    assert (found.request.messages, found.dropped) == ((Message(role="user", parts=(Text(text=told),)),), ())


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (
            b'{"type":"search_result","title":"Cats","source":"https://a.example","content":[{"type":"text","text":"Meow"}]}',
            "Cats\nhttps://a.example\nMeow",
        ),
        (b'{"type":"tool_reference","tool_name":"mcp__a__b"}', "mcp__a__b"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_part_of_another_dialect_that_can_be_read_is_told_as_text(block: bytes, told: str, *, inside: bool) -> None:
    def message(part: Opaque | Text) -> Message:
        return Message(role="user", parts=(ToolResult(call_id="a", parts=(part,)) if inside else part,))

    found = fitted(request(messages=(message(Opaque(type="of theirs", raw=block, origin=MESSAGES)),)), EVERYTHING)
    assert (found.request.messages, found.dropped) == ((message(Text(text=told)),), ())


def test_a_part_of_another_dialect_inside_of_a_tools_result_is_refused_or_dropped_and_listed() -> None:
    result = ToolResult(call_id="a", parts=(Text(text="a"), FOREIGN))
    asked = request(messages=(Message(role="tool", parts=(result,)),))
    with pytest.raises(UnsupportedParameter):
        fitted(asked, EVERYTHING)
    found = fitted(asked, EVERYTHING, drop=True)
    assert found.dropped == ("their_messages[0]",)
    assert found.request.messages == (Message(role="tool", parts=(ToolResult(call_id="a", parts=(Text(text="a"),)),)),)


def test_a_part_of_a_kind_that_the_models_template_knows_passes_as_it_came() -> None:
    asked = request(messages=(Message(role="user", parts=(Text(text="a"), FOREIGN)),))
    knows = Capabilities(
        fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text,)), foreign_parts=frozenset({"computer_call"})
    )
    found = fitted(asked, knows, drop=True)
    assert (found.request, found.dropped) == (asked, ())
    with pytest.raises(UnsupportedParameter):
        fitted(asked, replace(knows, foreign_parts=frozenset({"table"})))


def test_a_choice_of_a_tool_that_was_dropped_goes_with_it() -> None:
    tools = (Tool(kind="function", name="f"), Tool(kind="hosted", name="search", raw=b"{}"))
    asked = request(tools=tools, tool_choice=ToolChoice(mode="required", name="search", kind="hosted", raw=b"{}"))
    found = fitted(asked, EVERYTHING, drop=True)
    assert (found.request.tools, found.request.tool_choice) == (tools[:1], None)


def test_a_summary_of_thoughts_is_what_every_target_gives() -> None:
    asked = request(reasoning=ReasoningOptions(summary="auto"), truncation="disabled")
    assert fitted(asked, NOTHING).dropped == ()


def test_a_format_of_another_name_is_refused_by_that_name() -> None:
    asked = request(output_format=OutputFormat(kind="regex", text="a", field="guided_regex", path="guided_regex"))
    for capabilities in (NOTHING, Capabilities(fields=EXPRESSIBLE_FIELDS, output_formats=frozenset({"json_object"}))):
        with pytest.raises(UnsupportedParameter) as caught:
            fitted(asked, capabilities)
        assert caught.value.param == "guided_regex"


def test_an_unknown_type_of_a_format_is_told_with_the_types_that_there_are() -> None:
    asked = request(output_format=OutputFormat(kind="json_shema", raw=b"{}"))
    capable = frozenset({"json_object", "json_schema"})
    for formats in (None, capable):
        with pytest.raises(UnsupportedParameter, match=r"text, json_schema, json_object, .* got json_shema") as caught:
            fitted(asked, Capabilities(fields=EXPRESSIBLE_FIELDS, output_formats=formats))
        assert caught.value.param == spell("output_format")
    its_own = Capabilities(fields=EXPRESSIBLE_FIELDS, forwards=frozenset({"chat"}))
    assert fitted(asked, its_own).request is asked


@pytest.mark.parametrize(
    ("dialect", "said", "meant"),
    [
        ("openai.chat", "temprature", "temperature"),
        ("openai.chat", "max_token", "max_tokens"),
        ("openai.chat", "repeat_penality", "repeat_penalty"),
        ("openai.completions", "sufix", "suffix"),
        ("openai.responses", "max_output_token", "max_output_tokens"),
        ("anthropic.messages", "stop_sequence", "stop_sequences"),
        ("gemini.generate_content", "generationConfig.topp", "generationConfig.topP"),
        ("gemini.generate_content", "system_instruction", "systemInstruction"),
        ("ollama.chat", "options.num_cxt", "options.num_ctx"),
        ("ollama.generate", "sytem", "system"),
    ],
)
def test_a_misspelt_field_is_told_with_the_one_that_it_may_have_meant(dialect: str, said: str, meant: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(dialect=dialect, extras={said: b"1"}), NOTHING)
    assert caught.value.message == f"{said}: not supported by the model 'm', did you mean '{meant}'?"
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(dialect=dialect, extras={said: b"1", "zzz": b"1", "q" * 999: b"1"}), NOTHING)
    assert caught.value.message.endswith(f", did you mean '{meant}' for '{said}'?")


def test_a_field_that_is_spelled_well_is_not_told_to_be_meant() -> None:
    asked = request(dialect="gemini.generate_content", extras={"cachedContent": b'"x"', "cachedContents": b'"x"'})
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(asked, NOTHING)
    assert caught.value.message.endswith("by the model 'm', did you mean 'cachedContent' for 'cachedContents'?")
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(dialect="gemini.generate_content", extras={"cachedContent": b'"x"'}), NOTHING)
    assert caught.value.message == "cachedContent: not supported by the model 'm'"


def test_options_of_a_format_are_refused_by_name_or_dropped_and_listed() -> None:
    wanted = OutputFormat(
        kind="json_object", field="structured_outputs", whitespace=" ", unmapped=("disable_additional_properties",)
    )
    names = ("structured_outputs.disable_additional_properties", "structured_outputs.whitespace_pattern")
    found = fitted(request(output_format=wanted), EVERYTHING, drop=True)
    assert found.dropped == names
    assert found.request.output_format == OutputFormat(kind="json_object", field="structured_outputs")
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(output_format=wanted), EVERYTHING)
    assert caught.value.param == names[0]
    spaced = request(output_format=OutputFormat(kind="json_object", whitespace=" "))
    capable = Capabilities(fields=EXPRESSIBLE_FIELDS, output_formats=frozenset({"json_object", "grammar"}))
    assert fitted(spaced, capable) == Fitted(spaced)


def test_keywords_that_a_target_does_not_enforce_are_named_with_their_place() -> None:
    wanted = OutputFormat(
        kind="json_schema", schema=b'{"properties":{"a":{"uniqueItems":true}}}', path="guided_json", field="guided_json"
    )
    capable = Capabilities(fields=EXPRESSIBLE_FIELDS, schema_lacks={"uniqueItems": (False,)})
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(output_format=wanted), capable)
    assert caught.value.param == "guided_json.properties.a.uniqueItems"
    tag = OutputFormat(kind="structural_tag", schema=b'{"format":{"type":"any_text"}}')
    lacking = Capabilities(fields=EXPRESSIBLE_FIELDS, schema_lacks={"format": ()})
    assert fitted(request(output_format=tag), lacking).dropped == ()


def test_a_strict_tool_is_named_where_calls_are_held_to_no_schema() -> None:
    strict = Tool(kind="function", name="f", parameters=b'{"type":"object"}', strict=True)
    loose = Tool(kind="function", name="f", parameters=b'{"type":"object"}', strict=False)
    lacking = Capabilities(fields=EXPRESSIBLE_FIELDS, strict_tools=False)
    with pytest.raises(UnsupportedParameter) as caught:
        fitted(request(tools=(loose, strict)), lacking)
    assert caught.value.param == "their_tools[1].strict"
    found = fitted(request(tools=(strict,)), lacking, drop=True)
    assert found.dropped == ("their_tools[0].strict",)
    assert found.request.tools == (Tool(kind="function", name="f", parameters=b'{"type":"object"}'),)
    assert fitted(request(tools=(strict,)), EVERYTHING).dropped == ()


def test_a_document_that_is_a_file_needs_a_target_that_takes_files() -> None:
    paper = Document(source=MediaSource(data="JVBERi0=", media_type="application/pdf"))
    texts = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Document)))
    asked = request(messages=(Message(role="user", parts=(paper,)),))
    with pytest.raises(UnsupportedParameter, match="document parts"):
        fitted(asked, texts)
    files = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Document, File)))
    assert fitted(asked, files).request == asked
    told = request(messages=(Message(role="user", parts=(Document(text="x"),)),))
    assert fitted(told, texts).request == told


def test_what_stands_elsewhere_in_the_request_too_is_left_out_without_a_word() -> None:
    told = Opaque(type="additional_tools", raw=b"{}", origin="openai.responses", is_told=True)
    asked = Request(model="m", dialect="openai.responses", messages=(Message(role="user", parts=(told,)), *USER))
    assert fit(asked, EVERYTHING, str, drop=False, completions_as_chat=False).request.messages == USER
    native = Capabilities(
        fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Opaque)), forwards=frozenset(("openai.responses",))
    )
    assert fit(asked, native, str, drop=False, completions_as_chat=False) == Fitted(asked)


def test_a_file_of_text_is_told_as_text_where_files_are_not_taken() -> None:
    table = File(source=MediaSource(data="YSxiCg==", media_type="text/csv"), filename="t.csv")
    asked = request(messages=(Message(role="user", parts=(Text(text="sum"), table)),))
    texts = Capabilities(fields=EXPRESSIBLE_FIELDS)
    told = (Text(text="sum"), Text(text="t.csv\na,b\n"))
    assert fitted(asked, texts) == Fitted(request(messages=(Message(role="user", parts=told),)))
    files = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, File)))
    assert fitted(asked, files).request == asked
    result = ToolResult(call_id="c", parts=(table,))
    asked = request(messages=(Message(role="tool", parts=(result,)),))
    (message,) = fitted(asked, texts).request.messages or ()
    assert message.parts == (ToolResult(call_id="c", parts=(told[1],)),)


def test_a_file_that_is_no_text_is_refused_by_its_place() -> None:
    paper = File(source=MediaSource(data="JVBERi0="))
    asked = request(messages=(*USER, Message(role="user", parts=(paper,))))
    with pytest.raises(UnsupportedParameter, match="the model does not take file parts") as caught:
        fitted(asked, Capabilities(fields=EXPRESSIBLE_FIELDS), drop=True)
    assert caught.value.param == "their_messages[1]"


@pytest.mark.parametrize(("asked", "sent"), [(32_000, 8192), (8192, 8192), (64, 64), (None, None)])
def test_a_limit_beyond_the_longest_answer_becomes_that_answers_length(asked: int | None, sent: int | None) -> None:
    capable = Capabilities(fields=EXPRESSIBLE_FIELDS, max_output=8192)
    found = fitted(request(max_tokens=asked), capable)
    assert (found.request.max_tokens, found.dropped) == (sent, ())


def test_a_limit_in_the_targets_own_dialect_is_its_own_to_judge() -> None:
    capable = Capabilities(fields=EXPRESSIBLE_FIELDS, max_output=8192, forwards=frozenset({"chat"}))
    asked = request(max_tokens=32_000)
    assert fitted(asked, capable).request is asked
    assert fitted(asked, EVERYTHING).request is asked
