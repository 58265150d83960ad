"""In which form a local model writes its reasoning and its tool calls, and what is needed to read one answer back.

Owns what a chat template tells about it, one row a sign; run.yaml goes before that. The forms themselves are those of
`adapters.text`. Knows no events.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from adapters.canonical.request import NONE, REQUIRED, Request
from adapters.text.calls.parameter_types import parameter_types
from adapters.text.harmony import HARMONY_ENDS, HARMONY_MARKS, HarmonyReader
from adapters.text.pipeline import TextPipeline
from adapters.text.reasoning import REASONING_FORMATS, ReasoningFormat, ReasoningSplitter
from adapters.text.tool_calls import TOOL_FORMATS, BegunCall, ToolCallParser, ToolFormat
from providers.local.chat_template import ChatTemplate
from providers.local.custom_tools import custom_names
from providers.local.settings import NO_FORMAT, LocalModelSettings
from providers.local.template_messages import writes_tools_as_text
from providers.local.tokenizer import Tokenizer
from providers.local.tool_grammar import callable_tools

__all__ = ["TextFormats", "shown_special_ids", "text_formats", "text_pipeline"]

_REASONING_SIGNS: Mapping[tuple[str, ...], str] = {
    # What a template that knows the form writes or looks for; the first row whose signs are all there decides.
    ("<|channel|>",): "harmony",
    ("<|channel>",): "gemma",
    ("<seed:think>",): "seed_oss",
    ("<|START_THINKING|>",): "cohere",
    ("<think>",): "think",
    ("</think>",): "think",
    ("[THINK]",): "mistral",
}
_TOOL_SIGNS: Mapping[tuple[str, ...], str] = {
    # The same of calls. Forms that share a sign with a simpler one stand before it.
    ("<seed:tool_call>",): "seed_oss",
    ("<function=",): "qwen3_coder",
    ("<arg_key>",): "glm",
    ("<minimax:tool_call>",): "minimax_m2",
    ("｜DSML｜",): "deepseek_v32",
    ("<｜tool▁sep｜>", "```json"): "deepseek_v3",
    ("<｜tool▁sep｜>",): "deepseek_v31",
    ("<|tool_calls_section_begin|>",): "kimi_k2",
    ("<start_function_call>",): "function_gemma",
    ("<|tool_call>",): "gemma",
    ("<|tool_call|>",): "granite",
    ("<|START_ACTION|>",): "cohere",
    ("<|tool_call_start|>",): "lfm2",
    ("<|python_start|>",): "pythonic",
    ("<function_calls>",): "olmo3",
    ("[ARGS]",): "mistral_args",
    ("<tool_call>",): "hermes",
    ("[TOOL_CALLS]",): "mistral",
    ("<|python_tag|>",): "llama3_json",
    ('"parameters": ',): "llama3_json",
}


@dataclass(frozen=True, slots=True)
class TextFormats:
    """None: the model writes none, or in a form that is not known. `special_marks` are the special tokens among the
    marks, by their text."""

    reasoning: ReasoningFormat | None = None
    tools: ToolFormat | None = None
    special_marks: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_channels(self) -> bool:
        """Whether one reader takes the whole answer apart, calls too (`adapters.text.harmony`)."""
        return self.reasoning is not None and self.reasoning.channels

    @property
    def reads_calls(self) -> bool:
        return self.tools is not None or self.has_channels

    @property
    def ends(self) -> frozenset[int]:
        """Special tokens of the form that end an answer, whatever the model's files say."""
        return frozenset(self.special_marks[mark] for mark in HARMONY_ENDS if mark in self.special_marks)


def text_formats(template: ChatTemplate | None, tokenizer: Tokenizer, settings: LocalModelSettings) -> TextFormats:
    """As the settings say, else as the template shows. Templates without tools are shown them in the Hermes form."""
    if template is None:
        return TextFormats()
    reasoning_name = settings.reasoning_format or _first_sign(template, _REASONING_SIGNS)
    tool_name = settings.tool_format or _tool_format(template)
    reasoning, tools = REASONING_FORMATS.get(reasoning_name), TOOL_FORMATS.get(tool_name)
    if reasoning is not None and reasoning.channels:
        tools = None
    marks = [*_reasoning_marks(reasoning), *_marks(tools)]
    return TextFormats(reasoning, tools, dict(_special_marks(marks, tokenizer)))


def _tool_format(template: ChatTemplate) -> str:
    return "hermes" if writes_tools_as_text(template) else _first_sign(template.for_tools or template, _TOOL_SIGNS)


def _first_sign(template: ChatTemplate, signs: Mapping[tuple[str, ...], str]) -> str:
    return next((name for row, name in signs.items() if all(map(template.mentions, row))), NO_FORMAT)


def _reasoning_marks(form: ReasoningFormat | None) -> Iterable[str]:
    if form is None:
        return ()
    return HARMONY_MARKS if form.channels else (form.start, form.end)


def _marks(form: ToolFormat | None) -> Iterable[str]:
    return () if form is None else form.marks


def _special_marks(marks: Iterable[str], tokenizer: Tokenizer) -> Iterable[tuple[str, int]]:
    for mark in marks:
        ids = tokenizer.encode(mark, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            yield mark, ids[0]


def text_pipeline(
    formats: TextFormats,
    request: Request,
    *,
    starts_inside: bool,
    new_call_id: Callable[[], str],
    begun_call: str | None = None,
) -> TextPipeline | None:
    """What reads the answer to this request; None where it is text and nothing else.

    Plain prompts have no turns and so no marks. With a tool choice of none, text that looks like a call stays text.
    begun_call: the tool in whose call the prompt ends. Without text there is nothing to read.
    """
    if request.messages is None or request.detokenize is False:
        return None
    if begun_call is not None:
        return TextPipeline(None, BegunCall(begun_call, new_call_id), custom=custom_names(request))
    hides = request.reasoning is not None and request.reasoning.include is False
    schemas = {tool.name: tool.parameters for _, tool in callable_tools(request)}

    def types(name: str) -> Mapping[str, frozenset[str]]:
        return parameter_types(schemas[name])

    parallel = request.parallel_tool_calls is not False
    separates = request.reasoning is None or request.reasoning.separate is not False
    if formats.has_channels and separates:
        return TextPipeline(
            HarmonyReader(schemas.keys(), new_call_id, parallel=parallel),
            None,
            shows_reasoning=not hides,
            custom=custom_names(request),
        )
    reasoning = calls = None
    tools = _tools_read(formats, request)
    if formats.reasoning is not None and separates:
        mark = tools.start if tools is not None and tools.start in formats.special_marks else ""
        reasoning = ReasoningSplitter(formats.reasoning, starts_inside=starts_inside, answer_mark=mark)
    if tools is not None:
        must_call = request.tool_choice is not None and request.tool_choice.mode == REQUIRED
        calls = ToolCallParser(tools, schemas.keys(), new_call_id, types=types, parallel=parallel, must_call=must_call)
    if reasoning is None and calls is None:
        return None
    return TextPipeline(reasoning, calls, shows_reasoning=not hides, custom=custom_names(request))


def shown_special_ids(formats: TextFormats, request: Request) -> frozenset[int]:
    """The special tokens that are part of this answer's text, since they are marks that its pipeline reads."""
    if not formats.special_marks or request.messages is None:
        return frozenset()
    marks = [*_reasoning_marks(formats.reasoning), *_marks(_tools_read(formats, request))]
    return frozenset(formats.special_marks[mark] for mark in marks if mark in formats.special_marks)


def _tools_read(formats: TextFormats, request: Request) -> ToolFormat | None:
    choice = request.tool_choice
    return formats.tools if request.tools and (choice is None or choice.mode != NONE) else None
