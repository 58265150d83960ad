"""What an answer of a local model has to look like: its output format, and the tool calls that are asked for.

Owns how both stand together, and where the constraint begins: behind the reasoning of a model that thinks. Knows
neither the spelling of calls nor how grammars are compiled.

| tool choice | the answer |
|---|---|
| none, or no tools | the output format |
| auto | the output format or calls; without a format, text in which calls follow on the model's own mark |
| required, or a named tool | calls and nothing else |
"""

from collections.abc import Sequence
from typing import Final

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat, Request
from adapters.text.reasoning import ReasoningFormat
from providers.local.grammar_text import Grammar, GrammarWriter, literal, read_schema
from providers.local.structural_tags import structural_tag
from providers.local.text_formats import TextFormats
from providers.local.tool_grammar import ToolGrammar, callable_tools, must_call, needs_tool_grammar

__all__ = ["FORMAT_KINDS", "constraint"]

FORMAT_KINDS: Final = frozenset(("json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"))
_OBJECT: Final = {"type": "object"}
_BREAKS: Final = r"/\n{1,2}/"
_BLANKS: Final = r"/[ \t\r\n]*/"


def constraint(
    formats: TextFormats, request: Request, *, opens_reasoning: bool = False, begins_call: bool = False
) -> Grammar | None:
    """The grammar of the answer; None where it may be anything. Takes long where schemas are large.

    opens_reasoning: the prompt ends inside the model's reasoning. begins_call: it ends where the arguments of the tool
    that was chosen by name begin. Raises InvalidRequest or UnsupportedParameter, naming the place.
    """
    answer = _Answer(formats, request)
    if not answer.is_bound:
        return None
    if begins_call:
        return answer.of_arguments()
    return answer.whole(formats.reasoning if request.messages is not None else None, opens_reasoning)


class _Answer:
    def __init__(self, formats: TextFormats, request: Request) -> None:
        self._writer = GrammarWriter()
        self._formats = formats
        self._request = request
        wanted = request.output_format
        self._wanted = None if wanted is None or wanted.kind == "text" else wanted
        self._is_forced = must_call(request.tool_choice)
        self._tools: ToolGrammar | None = None
        bound = self._wanted is not None or needs_tool_grammar(request)
        if bound and formats.tools is not None and request.messages is not None and callable_tools(request):
            self._tools = ToolGrammar(self._writer, formats.tools, formats.special_marks, request)

    @property
    def is_bound(self) -> bool:
        return self._wanted is not None or self._tools is not None

    def of_arguments(self) -> Grammar:
        assert self._tools is not None  # a tool was chosen
        return self._writer.finish(f'" "? {self._tools.arguments_alone()}')

    def whole(self, form: ReasoningFormat | None, opens_reasoning: bool) -> Grammar:
        """The answer, behind the model's reasoning where it reasons."""
        writer = self._writer
        if form is None:
            return writer.finish(self._body(()))
        thoughts = self._reasoning(form)
        behind = f"{thoughts} {_BREAKS}? {writer.rule(self._body(()))}"
        if opens_reasoning:
            return writer.finish(behind)
        # The mark as text could be the beginning of the answer's own; as a special token it can't.
        is_special = form.start in self._formats.special_marks
        unlike = () if is_special else (f"{_BLANKS} {literal(form.start)}",)
        opening = f"{_BREAKS}? {self._mark(form.start)}"
        return writer.finish(f"{opening} {behind} | {writer.rule(self._body(unlike))}")

    def _reasoning(self, form: ReasoningFormat) -> str:
        """What the model thinks, and the mark that closes it."""
        if form.end in self._formats.special_marks:
            return f"{self._writer.text()} {self._mark(form.end)}"
        return self._writer.text_until([form.end])

    def _mark(self, mark: str) -> str:
        token_id = self._formats.special_marks.get(mark)
        return literal(mark) if token_id is None else f"<[{token_id}]>"

    def _body(self, unlike: Sequence[str]) -> str:
        """What follows on the reasoning. unlike: expressions for what free text does not begin with."""
        tools, wanted = self._tools, self._wanted
        if tools is not None and self._is_forced:
            return tools.calls()
        if tools is not None and wanted is not None:
            return f"{tools.calls(marked=True)} | {self._format(wanted)}"
        if tools is not None:
            return tools.text_with_calls(unlike)
        assert wanted is not None
        return self._format(wanted)

    def _format(self, wanted: OutputFormat) -> str:
        writer, path = self._writer, wanted.path or "response_format"
        for option in wanted.unmapped:
            raise UnsupportedParameter(f"{path}.{option}: not supported", param=f"{path}.{option}")
        match wanted.kind:
            case "json_object":
                return writer.schema(_OBJECT, path, space=wanted.whitespace)
            case "json_schema":
                schema = _OBJECT if wanted.schema is None else read_schema(wanted.schema, path)
                return writer.schema(schema, path, lenient=wanted.strict is False, space=wanted.whitespace)
            case "structural_tag" if wanted.schema is not None:
                return structural_tag(writer, wanted.schema, path)
            case "regex" if wanted.text is not None:
                return writer.regex(wanted.text, path)
            case "grammar" if wanted.text is not None:
                return writer.grammar(wanted.text, path)
            case "choice" if wanted.choices is not None:
                return writer.choice(wanted.choices)
            case kind if kind in FORMAT_KINDS:
                raise InvalidRequest(f"{path}: says nothing of the {kind}", param=path)
            case kind:
                raise UnsupportedParameter(f"{path}: there is no format {kind}", param=path)
