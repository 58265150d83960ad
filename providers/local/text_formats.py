"""In which form a local model writes its reasoning and its tool calls, and what is needed to read one answer back.

Owns what a chat template tells about it, one row a sign; run.yaml goes before that. The forms themselves are those of
`adapters.text`. Knows no events.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from adapters.canonical.request import NONE, Request
from adapters.text.pipeline import TextPipeline
from adapters.text.reasoning import REASONING_FORMATS, ReasoningFormat, ReasoningSplitter
from adapters.text.tool_calls import TOOL_FORMATS, ToolCallParser, ToolFormat
from providers.local.chat_template import ChatTemplate
from providers.local.settings import NO_FORMAT, LocalModelSettings
from providers.local.template_messages import writes_tools_as_text
from providers.local.tokenizer import Tokenizer

__all__ = ["TextFormats", "shown_special_ids", "text_formats", "text_pipeline"]

_REASONING_SIGNS: Mapping[str, str] = {
    # What a template that knows the form writes or looks for; the first sign that is found decides.
    "<think>": "think",
    "</think>": "think",
    "[THINK]": "mistral",
}
_TOOL_SIGNS: Mapping[str, str] = {
    # Forms that nobody here reads stand first, where they share a sign with one that is read.
    "<function=": NO_FORMAT,
    "<arg_key>": NO_FORMAT,
    "[ARGS]": NO_FORMAT,
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "llama3_json",
    '"parameters": ': "llama3_json",
}


@dataclass(frozen=True, slots=True)
class TextFormats:
    """None: the model writes none, or in a form that is not known. `special_marks` are the special tokens among the
    marks, by their text."""

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
    special_marks: Mapping[str, int] = field(default_factory=dict)


def text_formats(template: ChatTemplate | None, tokenizer: Tokenizer, settings: LocalModelSettings) -> TextFormats:
    """As the settings say, else as the template shows. Templates without tools are shown them in the Hermes form."""
    if template is None:
        return TextFormats()
    reasoning_name = settings.reasoning_format or _first_sign(template, _REASONING_SIGNS)
    tool_name = settings.tool_format or _tool_format(template)
    reasoning, tools = REASONING_FORMATS.get(reasoning_name), TOOL_FORMATS.get(tool_name)
    return TextFormats(reasoning, tools, dict(_special_marks([*(reasoning or ()), *_marks(tools)], tokenizer)))


def _tool_format(template: ChatTemplate) -> str:
    return "hermes" if writes_tools_as_text(template) else _first_sign(template.for_tools or template, _TOOL_SIGNS)


def _first_sign(template: ChatTemplate, signs: Mapping[str, str]) -> str:
    return next((name for sign, name in signs.items() if template.mentions(sign)), NO_FORMAT)


def _marks(form: ToolFormat | None) -> Iterable[str]:
    return () if form is None else filter(None, (form.start, form.end))


def _special_marks(marks: Iterable[str], tokenizer: Tokenizer) -> Iterable[tuple[str, int]]:
    for mark in marks:
        ids = tokenizer.encode(mark, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            yield mark, ids[0]


def text_pipeline(
    formats: TextFormats, request: Request, *, starts_inside: bool, new_call_id: Callable[[], str]
) -> TextPipeline | None:
    """What reads the answer to this request; None where it is text and nothing else.

    Plain prompts have no turns and so no marks. With a tool choice of none, text that looks like a call stays text.
    """
    if request.messages is None:
        return None
    reasoning = calls = None
    if formats.reasoning is not None:
        reasoning = ReasoningSplitter(formats.reasoning, starts_inside=starts_inside)
    tools = _tools_read(formats, request)
    if tools is not None:
        declared = frozenset(tool.name for tool in request.tools or ())
        calls = ToolCallParser(tools, declared, new_call_id, parallel=request.parallel_tool_calls is not False)
    if reasoning is None and calls is None:
        return None
    hides = request.reasoning is not None and request.reasoning.include is False
    return TextPipeline(reasoning, calls, shows_reasoning=not hides)


def shown_special_ids(formats: TextFormats, request: Request) -> frozenset[int]:
    """The special tokens that are part of this answer's text, since they are marks that its pipeline reads."""
    if not formats.special_marks or request.messages is None:
        return frozenset()
    marks = [*(formats.reasoning or ()), *_marks(_tools_read(formats, request))]
    return frozenset(formats.special_marks[mark] for mark in marks if mark in formats.special_marks)


def _tools_read(formats: TextFormats, request: Request) -> ToolFormat | None:
    choice = request.tool_choice
    return formats.tools if request.tools and (choice is None or choice.mode != NONE) else None
