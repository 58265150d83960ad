"""Canonical messages and tools to the prompt of a local model.

Owns what templates expect of their dicts, and what is done for a template that refuses or leaves out something: first
the conversation as it is, then with later system messages as marked user turns, then with adjacent turns of one role
merged, then with the system text inside the first user turn. Nothing is dropped and the order stays. A template that
knows no tools is given them as text, in the Hermes form or another of `tools_as_text`, which is read back.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import SYSTEM, TOOL, USER, Message
from adapters.canonical.request import TemplateOptions, Tool
from providers.local.chat_template import ChatTemplate, TemplateRefusal
from providers.local.custom_tools import as_function
from providers.local.tools_as_text import HERMES, ToolsAsText
from providers.local.turns import (
    INSTRUCTIONS,
    Foreign,
    Picture,
    Turn,
    joined,
    quoted_turn,
    quoted_value,
    read_turns,
    run_together,
    with_text,
)

__all__ = ["render_prompt", "writes_tools_as_text"]

_CUT = "\ue000cut\ue000"
"""Stands at the end of a final message that the model is to continue; the prompt ends where it appears last."""
_SWITCH = re.compile(r"(?<!\S)/\w+(?!\S)")
_RESERVED_KWARGS = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token"}
)


def writes_tools_as_text(template: ChatTemplate) -> bool:
    """Whether tools of a request reach this model as text, which asks it to write its calls in the Hermes form."""
    return not (template.for_tools or template).knows_tools


def render_prompt(
    template: ChatTemplate,
    messages: Sequence[Message],
    tools: Sequence[Tool] | None = None,
    options: TemplateOptions | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    quote: Callable[[str], str] = str,
    image_mark: str | None = None,
    spelling: ToolsAsText = HERMES,
) -> str:
    """The prompt for these messages. `kwargs` are variables that the provider sets; the client's go before them.

    `quote` is done to every text of the client before the template, or what is added to it here, has any part in it.
    `image_mark`: what the template writes for each image; None: the model reads none. `spelling`: of tools, calls and
    results that the template has no place for.

    Raises UnsupportedParameter for what a text model cannot be shown and InvalidRequest, naming the message, where the
    template takes the conversation in none of its forms. Blocks.
    """
    options = options or TemplateOptions()
    if tools and template.for_tools is not None:
        template = template.for_tools
    goes_on = bool(options.continue_final_message)
    if goes_on and options.add_generation_prompt:
        raise InvalidRequest.at("continue_final_message", "not together with add_generation_prompt")
    declared = [quoted_value(_declared(tool, i), quote) for i, tool in enumerate(tools or ())]
    turns = read_turns(messages, template, reads_images=image_mark is not None)
    turns = _spelled_out([quoted_turn(turn, quote) for turn in turns], template, spelling)
    if declared and not template.knows_tools:
        turns = _with_tools_as_text(turns, spelling.declared(declared))
    if goes_on and turns:
        turns = [*turns[:-1], with_text(turns[-1], turns[-1].text + _CUT)]
    variables = {**(kwargs or {}), **quoted_value(_client_kwargs(options), quote)}
    generates = not goes_on if options.add_generation_prompt is None else options.add_generation_prompt

    def render(form: Sequence[Turn]) -> str:
        dicts = [_dict(turn, template) for turn in form]
        return template.render(dicts, tools=declared, add_generation_prompt=generates, kwargs=variables)

    prompt = _first_accepted(turns, render, image_mark)
    return prompt.rpartition(_CUT)[0] if goes_on else prompt


def _first_accepted(
    turns: Sequence[Turn], render: Callable[[Sequence[Turn]], str], image_mark: str | None = None
) -> str:
    """The prompt of the first form that the template takes and writes out with all its system text and images."""
    pictured = [turn for turn in turns if turn.pictures]
    num_pictures = sum(len(turn.pictures) for turn in pictured)
    needed = [turn for turn in turns if turn.role in INSTRUCTIONS or turn.text.endswith(_CUT)]
    complaint: InvalidRequest | None = None
    for form in _forms(turns):
        try:
            prompt = render(form)
        except TemplateRefusal as error:
            complaint = error if error.index is None else error.moved_to(form[error.index].index)
            complaint.__cause__ = error.__cause__
            continue
        lost = next((turn for turn in needed if not all(_is_in(prompt, text.strip()) for text in turn.texts)), None)
        if lost is None and pictured and prompt.count(image_mark or "") != num_pictures:
            where = f"messages[{pictured[0].index}]"
            complaint = UnsupportedParameter.at(where, "the model's chat template shows no images there")
            continue
        if lost is None:
            return prompt
        complaint = TemplateRefusal(f"the model's chat template leaves out this {lost.role} message", index=lost.index)
    raise complaint or InvalidRequest("messages: expected at least one")


def _is_in(prompt: str, text: str) -> bool:
    """Whether the text stands there, as it is or inside JSON. Words like /no_think, which some templates act on and
    take out, need not."""
    if text in prompt or json.dumps(text, ensure_ascii=False)[1:-1] in prompt:
        return True
    rest = _SWITCH.sub("", text)
    return rest != text and rest.strip() in prompt


def _forms(turns: Sequence[Turn]) -> Iterator[Sequence[Turn]]:
    """The conversation in the forms that a template may take, the most faithful first; no form twice."""
    last: Sequence[Turn] = ()
    for form in _ever_plainer(turns):
        if form != last:
            yield form
        last = form


def _ever_plainer(turns: Sequence[Turn]) -> Iterator[Sequence[Turn]]:
    yield turns
    first, rest = turns[:1], turns[1:]
    marked = [*first, *(_as_marked_user(turn) if turn.role in INSTRUCTIONS else turn for turn in rest)]
    yield marked
    yield _merged(marked)
    yield _merged([replace(turn, role=USER) if turn.role in INSTRUCTIONS else turn for turn in marked])


def _as_marked_user(turn: Turn) -> Turn:
    return with_text(replace(turn, role=USER, name=None), f"<system>\n{turn.text}\n</system>")


def _merged(turns: Sequence[Turn]) -> list[Turn]:
    """Adjacent turns of one role as one, with a blank line between. Tool results stay apart: each answers its call."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role != TOOL:
            merged[-1] = joined([merged[-1], turn], turn.role)
        else:
            merged.append(turn)
    return merged


def _spelled_out(turns: Sequence[Turn], template: ChatTemplate, spelling: ToolsAsText) -> list[Turn]:
    """The turns with their tool calls and results as text, where the template has no place for them."""
    if not template.reads_field("tool_calls"):
        turns = [_with_calls(turn, spelling) if turn.calls else turn for turn in turns]
    if not template.knows_role(TOOL):
        turns = [_as_user_response(turn, spelling) if turn.role == TOOL else turn for turn in turns]
    return list(turns)


def _with_calls(turn: Turn, spelling: ToolsAsText) -> Turn:
    calls = [spelling.call(call["function"]) for call in turn.calls]
    return with_text(replace(turn, calls=()), "\n".join(filter(None, [turn.text, *calls])))


def _as_user_response(turn: Turn, spelling: ToolsAsText) -> Turn:
    opening, closing = spelling.result
    around = replace(turn, parts=(opening, *turn.parts, closing))
    return Turn(turn.index, USER, run_together([around]))


def _with_tools_as_text(turns: Sequence[Turn], declared: str) -> list[Turn]:
    """The tools go behind the system text, or are it."""
    tools = Turn(0, SYSTEM, (declared,))
    if turns and turns[0].role in INSTRUCTIONS:
        return [joined([turns[0], tools], turns[0].role), *turns[1:]]
    return [tools, *turns]


def _declared(tool: Tool, index: int) -> Mapping[str, Any]:
    """A tool as templates expect it."""
    tool = as_function(tool)
    if tool.kind != "function":
        raise UnsupportedParameter.at(f"tools[{index}]", f"this model knows no {tool.kind} tools")
    parameters = {"type": "object", "properties": {}} if tool.parameters is None else json.loads(tool.parameters)
    described = {} if (description := tool.whole_description) is None else {"description": description}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}}


def _client_kwargs(options: TemplateOptions) -> dict[str, Any]:
    """The request's own variables. Those that the rendering itself sets are refused by name."""
    kwargs = {} if options.kwargs is None else json.loads(options.kwargs)
    if not isinstance(kwargs, dict):
        raise InvalidRequest.at("chat_template_kwargs", "expected an object")
    for name in kwargs:
        if name in _RESERVED_KWARGS:
            raise InvalidRequest.at(f"chat_template_kwargs.{name}", "set by the request itself, not here")
    if options.documents is not None:
        kwargs["documents"] = json.loads(options.documents)
    return kwargs


def _dict(turn: Turn, template: ChatTemplate) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": turn.role, "content": _content(turn, template)}
    if turn.name is not None:
        fields["name"] = turn.name
    if turn.reasoning:
        fields["reasoning_content"] = turn.reasoning
        if template.reads_field("thinking"):
            fields["thinking"] = turn.reasoning
    if turn.calls:
        fields["tool_calls"] = [dict(call) for call in turn.calls]
    if turn.call_id is not None:
        fields["tool_call_id"] = turn.call_id
    return fields


def _content(turn: Turn, template: ChatTemplate) -> str | list[Mapping[str, Any]]:
    """One text; or parts, for a template that walks over them and can't take a text, or where there are several."""
    form = template.content_form
    if turn.pictures and form == "text":
        raise UnsupportedParameter.at(f"messages[{turn.index}]", "the model's chat template shows no images")
    if turn.others or (turn.parts and (form == "parts" or (form == "either" and len(turn.parts) > 1))):
        return [_item(part) for part in turn.parts]
    return turn.text


def _item(part: str | Picture | Foreign) -> Mapping[str, Any]:
    match part:
        case str():
            return {"type": "text", "text": part}
        case Foreign():
            return part.fields
        case Picture():
            return {"type": "image"}
