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
from functools import cached_property
from typing import Final

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat, Request
from adapters.text.reasoning import ReasoningFormat
from providers.local.grammar_text import Grammar, GrammarWriter, literal, read_schema
from providers.local.harmony_grammar import harmony_answer, harmony_calls
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
        self._writer = GrammarWriter(formats.special_marks)
        self._formats = formats
        self._request = request
        wanted = request.output_format
        self._wanted = None if wanted is None or wanted.kind == "text" else wanted
        self._is_forced = must_call(request.tool_choice)
        bound = self._wanted is not None or needs_tool_grammar(request)
        self._calls = bound and request.messages is not None and formats.reads_calls and bool(callable_tools(request))

    @property
    def is_bound(self) -> bool:
        return self._wanted is not None or self._calls

    def of_arguments(self) -> Grammar:
        return self._writer.finish(f'" "? {self._tools.arguments_alone()}')

    def whole(self, form: ReasoningFormat | None, opens_reasoning: bool) -> Grammar:
        """The answer, behind the model's reasoning where it reasons."""
        writer = self._writer
        if form is None:
            return writer.finish(self._body(()))
        if form.channels:
            return writer.finish(self._on_channels(opens_reasoning))
        body = writer.rule(self._body(()))
        behind = f"{writer.text_through(form.end)} {_BREAKS}? {body}"
        if opens_reasoning:
            return writer.finish(behind)
        if self._is_free and not writer.is_special(form.start):
            # As text, the mark could be the beginning of the answer's own.
            body = writer.rule(self._body((f"{_BLANKS} {literal(form.start)}",)))
        return writer.finish(f"{_BREAKS}? {writer.spelled(form.start)} {behind} | {body}")

    def _on_channels(self, opens_reasoning: bool) -> str:
        wanted = None if self._wanted is None else self._format(self._wanted)
        calls = harmony_calls(self._writer, self._request) if self._calls else []
        return harmony_answer(
            self._writer, wanted, calls, is_forced=self._is_forced and self._calls, opens_reasoning=opens_reasoning
        )

    @property
    def _is_free(self) -> bool:
        """Whether text may be anything, but for the calls in it."""
        return self._wanted is None and not self._is_forced

    @cached_property
    def _tools(self) -> ToolGrammar:
        assert self._formats.tools is not None  # that is what `_calls` says, where there are no channels
        return ToolGrammar(self._writer, self._formats.tools, self._request)

    def _body(self, unlike: Sequence[str]) -> str:
        """What follows on the reasoning. unlike: expressions for what free text does not begin with."""
        wanted = self._wanted
        if self._calls and self._is_forced:
            return self._tools.calls()
        if self._calls and wanted is not None:
            return f"{self._tools.calls(marked=True)} | {self._format(wanted)}"
        if self._calls:
            return self._tools.text_with_calls(unlike)
        assert wanted is not None
        return self._format(wanted)

    def _format(self, wanted: OutputFormat) -> str:
        writer, path = self._writer, wanted.path or "response_format"
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
                raise InvalidRequest.at(path, f"says nothing of the {kind}")
            case kind:
                raise UnsupportedParameter.at(path, f"there is no format {kind}")
