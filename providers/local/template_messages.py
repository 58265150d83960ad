"""Canonical messages and tools to the prompt of a local model.

Owns what templates expect of their dicts, and what is done for a template that refuses or leaves out something: first
the conversation as it is, then with later system messages as marked user turns, then with adjacent turns of one role
merged, then with the system text inside the first user turn. Nothing is dropped and the order stays. A template that
knows no tools is given them as text, in the Hermes form or another of `tools_as_text`, which is read back.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, assert_never

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Audio,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import TemplateOptions, Tool
from adapters.text.custom_input import INPUT_MEMBER
from providers.local.chat_template import ChatTemplate, TemplateRefusal
from providers.local.custom_tools import as_function
from providers.local.tools_as_text import HERMES, ToolsAsText

__all__ = ["render_prompt", "writes_tools_as_text"]

_INSTRUCTIONS = (SYSTEM, DEVELOPER)
_BLANK_LINE = "\n\n"
_CUT = "\ue000cut\ue000"
"""Stands at the end of a final message that the model is to continue; the prompt ends where it appears last."""
_UNSAFE_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029<>|\[\]{}]")
_SWITCH = re.compile(r"(?<!\S)/\w+(?!\S)")
_RESERVED_KWARGS = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token"}
)


@dataclass(frozen=True, slots=True)
class _Picture:
    """An image in a turn. Which one it is, its place among all tells."""


_Content = tuple[str | _Picture, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One dict of the template's `messages`, before it is written. `index` is the client's message it came from."""

    index: int
    role: str
    parts: _Content = ()
    name: str | None = None
    reasoning: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    call_id: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple([part for part in self.parts if isinstance(part, str)])

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def pictures(self) -> tuple[_Picture, ...]:
        return tuple([part for part in self.parts if isinstance(part, _Picture)])


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
        raise InvalidRequest(
            "continue_final_message: not together with add_generation_prompt", param="continue_final_message"
        )
    declared = [_quoted(_declared(tool, i), quote) for i, tool in enumerate(tools or ())]
    turns = _turns(messages, template, reads_images=image_mark is not None)
    turns = _spelled_out([_quoted_turn(turn, quote) for turn in turns], template, spelling)
    if declared and not template.knows_tools:
        turns = _with_tools_as_text(turns, spelling.declared(declared))
    if goes_on and turns:
        turns = [*turns[:-1], _with_text(turns[-1], turns[-1].text + _CUT)]
    variables = {**(kwargs or {}), **_quoted(_client_kwargs(options), quote)}
    generates = not goes_on if options.add_generation_prompt is None else options.add_generation_prompt

    def render(form: Sequence[_Turn]) -> str:
        dicts = [_dict(turn, template) for turn in form]
        return template.render(dicts, tools=declared, add_generation_prompt=generates, kwargs=variables)

    prompt = _first_accepted(turns, render, image_mark)
    return prompt.rpartition(_CUT)[0] if goes_on else prompt


def _with_text(turn: _Turn, text: str) -> _Turn:
    """With this in place of its texts, behind its images."""
    return replace(turn, parts=(*turn.pictures, text))


def _first_accepted(
    turns: Sequence[_Turn], render: Callable[[Sequence[_Turn]], str], image_mark: str | None = None
) -> str:
    """The prompt of the first form that the template takes and writes out with all its system text and images."""
    pictured = [turn for turn in turns if turn.pictures]
    num_pictures = sum(len(turn.pictures) for turn in pictured)
    needed = [turn for turn in turns if turn.role in _INSTRUCTIONS or turn.text.endswith(_CUT)]
    complaint: InvalidRequest | None = None
    for form in _forms(turns):
        try:
            prompt = render(form)
        except TemplateRefusal as error:
            complaint = error if error.index is None else error.at(form[error.index].index)
            complaint.__cause__ = error.__cause__
            continue
        lost = next((turn for turn in needed if not all(_is_in(prompt, text.strip()) for text in turn.texts)), None)
        if lost is None and pictured and prompt.count(image_mark or "") != num_pictures:
            where = f"messages[{pictured[0].index}]"
            complaint = UnsupportedParameter(f"{where}: the model's chat template shows no images there", param=where)
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


def _forms(turns: Sequence[_Turn]) -> Iterator[Sequence[_Turn]]:
    """The conversation in the forms that a template may take, the most faithful first; no form twice."""
    last: Sequence[_Turn] = ()
    for form in _ever_plainer(turns):
        if form != last:
            yield form
        last = form


def _ever_plainer(turns: Sequence[_Turn]) -> Iterator[Sequence[_Turn]]:
    yield turns
    first, rest = turns[:1], turns[1:]
    marked = [*first, *(_as_marked_user(turn) if turn.role in _INSTRUCTIONS else turn for turn in rest)]
    yield marked
    yield _merged(marked)
    yield _merged([replace(turn, role=USER) if turn.role in _INSTRUCTIONS else turn for turn in marked])


def _as_marked_user(turn: _Turn) -> _Turn:
    return _with_text(replace(turn, role=USER, name=None), f"<system>\n{turn.text}\n</system>")


def _merged(turns: Sequence[_Turn]) -> list[_Turn]:
    """Adjacent turns of one role as one, with a blank line between. Tool results stay apart: each answers its call."""
    merged: list[_Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role != TOOL:
            merged[-1] = _joined([merged[-1], turn], turn.role)
        else:
            merged.append(turn)
    return merged


def _joined(turns: Sequence[_Turn], role: str) -> _Turn:
    first = turns[0]
    return replace(
        first,
        role=role,
        parts=_run_together(turns),
        name=first.name if all(turn.name == first.name for turn in turns) else None,
        reasoning=_BLANK_LINE.join([turn.reasoning for turn in turns if turn.reasoning]),
        calls=tuple(call for turn in turns for call in turn.calls),
    )


def _run_together(turns: Sequence[_Turn]) -> _Content:
    """What the turns say, in order: a blank line between two texts of different turns, nothing between two of one."""
    parts: list[str | _Picture] = []
    for turn in turns:
        said = [part for part in turn.parts if part]
        for place, part in enumerate(said):
            before = parts[-1] if parts else None
            if isinstance(part, str) and isinstance(before, str):
                parts[-1] = before + ("" if place else _BLANK_LINE) + part
            else:
                parts.append(part)
    return tuple(parts)


def _turns(messages: Sequence[Message], template: ChatTemplate, *, reads_images: bool) -> list[_Turn]:
    """The messages as turns; the system messages that lead are one turn."""
    reader = _MessageReader(template, reads_images)
    turns = [turn for i, message in enumerate(messages) for turn in reader.turns(message, i)]
    leading = list(takewhile(lambda turn: turn.role in _INSTRUCTIONS, turns))
    if len(leading) < 2:
        return turns
    role = SYSTEM if any(turn.role == SYSTEM for turn in leading) else DEVELOPER
    return [_joined(leading, role), *turns[len(leading) :]]


class _MessageReader:
    """Messages to turns, one after the other: the name of a call is known to its result."""

    def __init__(self, template: ChatTemplate, reads_images: bool) -> None:
        self._template = template
        self._reads_images = reads_images
        self._called: dict[str, str] = {}

    def turns(self, message: Message, index: int) -> Iterator[_Turn]:
        """One turn, or more where the message holds tool results: each is one."""
        role = message.role
        if role == DEVELOPER and not self._template.knows_role(DEVELOPER):
            role = SYSTEM
        turn = _Turn(index, role, name=_clean_name(message.name))
        pending = turn
        answered = False
        for j, part in enumerate(message.parts):
            match part:
                case Reasoning():
                    pending = replace(pending, reasoning=pending.reasoning + part.text)
                case ToolCall():
                    self._called[part.id] = part.name
                    pending = replace(pending, calls=(*pending.calls, _call(part, index)))
                case ToolResult():
                    if pending != turn:
                        yield pending
                    pending, answered = turn, True
                    name = _clean_name(self._called.get(part.call_id, message.name))
                    yield _Turn(
                        index, TOOL, self._result(part, f"messages[{index}].content[{j}]"), name, call_id=part.call_id
                    )
                case _:
                    pending = replace(
                        pending, parts=(*pending.parts, *self._said(part, f"messages[{index}].content[{j}]"))
                    )
        if pending != turn or not answered:
            yield pending

    def _result(self, result: ToolResult, where: str) -> _Content:
        """What the result says; a failed call says so, since templates have no other place for it."""
        failed = ("Error: ",) if result.is_error else ()
        return (*failed, *(said for part in result.parts for said in self._said(part, where)))

    def _said(self, part: Part, where: str) -> _Content:
        """Nothing of an empty text."""
        if self._reads_images and isinstance(part, Image):
            return (_Picture(),)
        text = _text(part, where)
        return (text,) if text else ()


def _quoted_turn(turn: _Turn, quote: Callable[[str], str]) -> _Turn:
    return replace(
        turn,
        role=quote(turn.role),
        parts=tuple([quote(part) if isinstance(part, str) else part for part in turn.parts]),
        name=None if turn.name is None else quote(turn.name),
        reasoning=quote(turn.reasoning),
        calls=tuple(_quoted(call, quote) for call in turn.calls),
        call_id=None if turn.call_id is None else quote(turn.call_id),
    )


def _quoted(value: Any, quote: Callable[[str], str]) -> Any:
    """A JSON value with every text in it quoted, names of members too."""
    match value:
        case str():
            return quote(value)
        case dict():
            return {quote(name): _quoted(member, quote) for name, member in value.items()}
        case list():
            return [_quoted(item, quote) for item in value]
        case _:
            return value


def _text(part: Part, where: str) -> str:
    """What the part says as text; a part that is none is refused by its place."""
    match part:
        case Text() | Refusal():
            return part.text
        case Audio() if part.transcript is not None:
            return part.transcript
        case Document() if part.text is not None:
            return _BLANK_LINE.join(filter(None, [part.title, part.context, part.text]))
        case Image() | Audio() | Video() | File() | Document():
            kind = type(part).__name__.lower()
        case Reasoning() | ToolCall() | ToolResult():
            kind = "this part inside a tool result"
        case Opaque():
            kind = part.type
        case _:
            assert_never(part)
    raise UnsupportedParameter(f"{where}: this model takes text only, not {kind}", param=where)


def _call(call: ToolCall, index: int) -> Mapping[str, Any]:
    match call.kind:
        case "function":
            arguments = _arguments(call.arguments)
        case "custom":
            arguments = {INPUT_MEMBER: call.arguments}
        case other:
            where = f"messages[{index}].tool_calls"
            raise UnsupportedParameter(f"{where}: this model knows no {other} tools", param=where)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _arguments(text: str) -> Mapping[str, Any] | str:
    """Templates want a mapping. What is no JSON object stays as the model wrote it."""
    if not text.strip():
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text


def _clean_name(name: str | None) -> str | None:
    """A name without the characters that could end its line or be read as a marker; None if nothing is left."""
    return (_UNSAFE_IN_NAME.sub("", name).strip() or None) if name else None


def _spelled_out(turns: Sequence[_Turn], template: ChatTemplate, spelling: ToolsAsText) -> list[_Turn]:
    """The turns with their tool calls and results as text, where the template has no place for them."""
    if not template.reads_field("tool_calls"):
        turns = [_with_calls(turn, spelling) if turn.calls else turn for turn in turns]
    if not template.knows_role(TOOL):
        turns = [_as_user_response(turn, spelling) if turn.role == TOOL else turn for turn in turns]
    return list(turns)


def _with_calls(turn: _Turn, spelling: ToolsAsText) -> _Turn:
    calls = [spelling.call(call["function"]) for call in turn.calls]
    return _with_text(replace(turn, calls=()), "\n".join(filter(None, [turn.text, *calls])))


def _as_user_response(turn: _Turn, spelling: ToolsAsText) -> _Turn:
    opening, closing = spelling.result
    around = replace(turn, parts=(opening, *turn.parts, closing))
    return _Turn(turn.index, USER, _run_together([around]))


def _with_tools_as_text(turns: Sequence[_Turn], declared: str) -> list[_Turn]:
    """The tools go behind the system text, or are it."""
    tools = _Turn(0, SYSTEM, (declared,))
    if turns and turns[0].role in _INSTRUCTIONS:
        return [_joined([turns[0], tools], turns[0].role), *turns[1:]]
    return [tools, *turns]


def _declared(tool: Tool, index: int) -> Mapping[str, Any]:
    """A tool as templates expect it."""
    tool = as_function(tool)
    if tool.kind != "function":
        raise UnsupportedParameter(f"tools[{index}]: this model knows no {tool.kind} tools", param=f"tools[{index}]")
    parameters = {"type": "object", "properties": {}} if tool.parameters is None else json.loads(tool.parameters)
    described = {} if tool.description is None else {"description": tool.description}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}}


def _client_kwargs(options: TemplateOptions) -> dict[str, Any]:
    """The request's own variables. Those that the rendering itself sets are refused by name."""
    kwargs = {} if options.kwargs is None else json.loads(options.kwargs)
    if not isinstance(kwargs, dict):
        raise InvalidRequest("chat_template_kwargs: expected an object", param="chat_template_kwargs")
    for name in kwargs:
        if name in _RESERVED_KWARGS:
            where = f"chat_template_kwargs.{name}"
            raise InvalidRequest(f"{where}: set by the request itself, not here", param=where)
    if options.documents is not None:
        kwargs["documents"] = json.loads(options.documents)
    return kwargs


def _dict(turn: _Turn, template: ChatTemplate) -> dict[str, Any]:
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


def _content(turn: _Turn, template: ChatTemplate) -> str | list[dict[str, str]]:
    """One text; or parts, for a template that walks over them and can't take a text, or where there are several."""
    form = template.content_form
    if turn.pictures and form == "text":
        where = f"messages[{turn.index}]"
        raise UnsupportedParameter(f"{where}: the model's chat template shows no images", param=where)
    if turn.pictures or (turn.parts and (form == "parts" or (form == "either" and len(turn.parts) > 1))):
        return [
            {"type": "image"} if isinstance(part, _Picture) else {"type": "text", "text": part} for part in turn.parts
        ]
    return turn.text
