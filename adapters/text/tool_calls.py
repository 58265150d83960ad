"""Finds a model's tool calls in a stream of text.

Owns the forms in which models write calls, one row a format; the syntaxes are those of `adapters.text.calls`. Arguments
are given out while they arrive: JSON as the model wrote it, anything else as the JSON that it stands for. Nothing is
repaired, but line breaks inside of JSON's strings are escaped, and brackets left over behind an object are left out.
What turns out to be no call is text, and so is a call of a tool that nobody declared. Knows no models and no requests.

Once a call is announced it stays one: if its arguments never end, or cannot be read, all that follows is arguments as
it stands. What surrounds them (the marks, the line breaks next to them, the object's other keys) belongs to the form
and is not given out. A call that the text is cut off in before it is announced is withheld: half of a form is no text.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from adapters.text.calls.book import (
    CallArguments,
    CallBook,
    CallFinished,
    CallPiece,
    CallStarted,
    NotACall,
    ParameterTypes,
    TextPiece,
    no_types,
)
from adapters.text.calls.gemma import GemmaCalls
from adapters.text.calls.json_objects import json_list, json_objects, plain_json
from adapters.text.calls.json_text import MAX_DEPTH
from adapters.text.calls.llama import llama_calls
from adapters.text.calls.named_json import NamedJson, kimi_name, mistral_name
from adapters.text.calls.pythonic import Pythonic
from adapters.text.calls.tagged import Tagged
from adapters.text.growing_text import LINE_BREAKS, WHITESPACE, GrowingText, Waits

__all__ = [
    "MAX_DEPTH",
    "TOOL_FORMATS",
    "BegunCall",
    "CallArguments",
    "CallFinished",
    "CallPiece",
    "CallStarted",
    "TextPiece",
    "ToolCallParser",
    "ToolFormat",
]

Syntax = Callable[[CallBook, str], Waits[None]]
"""Reads the calls at the cursor of a book; the text is the mark that closes them. Raises NotACall."""


class ToolFormat(NamedTuple):
    """Calls stand between `start` and `end` (which may be empty), written in `syntax`.

    `leads`: characters with which an answer may also begin with a call, without `start`. `start` "": only there.
    `padding`: what models write between the marks and a JSON object. `name_key`, `arguments_key`: what they call its
    name and its arguments. `number_key`: what stands before them, with a call's number as a string.
    `special`: the marks are special tokens, which servers leave out unless they are asked for them. `inner`: marks
    between `start` and `end`. `bare`: what a call begins with where the model forgot `start`.
    """

    start: str
    end: str = ""
    syntax: Syntax = json_objects
    leads: str = ""
    padding: str = ""
    number_key: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    special: bool = False
    inner: tuple[str, ...] = ()
    bare: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.start, self.end, *self.inner)))

    @property
    def is_json(self) -> bool:
        """Whether calls are JSON objects with name and arguments."""
        return self.syntax in (json_objects, json_list, plain_json, llama_calls)

    @property
    def is_list(self) -> bool:
        """Whether they are the members of a JSON array."""
        return self.syntax is json_list


_LEFT_OVER = WHITESPACE | frozenset("}])")
"""What models write between the end of a call and the mark that closes it, brackets too many included."""
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_CALL = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
_KIMI_CALL = ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
_QWEN_TAGS = Tagged("<function=", ">", "<parameter=", ">", "</parameter>", call_end="</function>", breaks=True)

TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat("<tool_call>", "</tool_call>", padding="\n"),
    "llama3_json": ToolFormat(
        "<|python_tag|>", syntax=llama_calls, leads="{", arguments_key="parameters", special=True
    ),
    "mistral": ToolFormat("[TOOL_CALLS]", syntax=json_list, special=True),
    "granite": ToolFormat("<|tool_call|>", syntax=json_list, special=True),
    "cohere": ToolFormat(
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        json_list,
        number_key="tool_call_id",
        name_key="tool_name",
        arguments_key="parameters",
        special=True,
    ),
    "mistral_args": ToolFormat(
        "[TOOL_CALLS]",
        syntax=NamedJson("[ARGS]", parts=mistral_name),
        special=True,
        inner=("[ARGS]", "[CALL_ID]"),
    ),
    "json": ToolFormat("", syntax=plain_json, leads="{[`"),
    "pythonic": ToolFormat("<|python_start|>", "<|python_end|>", Pythonic(), leads="[", special=True),
    "lfm2": ToolFormat("<|tool_call_start|>", "<|tool_call_end|>", Pythonic(), special=True),
    "olmo3": ToolFormat("<function_calls>", "</function_calls>", Pythonic(is_list=False)),
    "tool_code": ToolFormat("```tool_code", "```", Pythonic(is_list=False)),
    "gemma": ToolFormat("<|tool_call>", "<tool_call|>", GemmaCalls('<|"|>'), special=True, inner=('<|"|>',)),
    "function_gemma": ToolFormat(
        "<start_function_call>",
        "<end_function_call>",
        GemmaCalls("<escape>"),
        special=True,
        inner=("<escape>",),
    ),
    "deepseek_v3": ToolFormat(
        *_DEEPSEEK,
        NamedJson("\n```json\n", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>"),
        special=True,
        inner=_DEEPSEEK_CALL,
    ),
    "deepseek_v31": ToolFormat(
        *_DEEPSEEK,
        NamedJson("<｜tool▁sep｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        special=True,
        inner=_DEEPSEEK_CALL,
    ),
    "deepseek_v32": ToolFormat(
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        Tagged(
            '<｜DSML｜invoke name="',
            '">',
            '<｜DSML｜parameter name="',
            '">',
            "</｜DSML｜parameter>",
            call_end="</｜DSML｜invoke>",
        ),
        special=True,
        inner=("｜DSML｜",),
    ),
    "qwen3_coder": ToolFormat("<tool_call>", "</tool_call>", _QWEN_TAGS, bare=_QWEN_TAGS.name_start),
    "seed_oss": ToolFormat("<seed:tool_call>", "</seed:tool_call>", _QWEN_TAGS, bare=_QWEN_TAGS.name_start),
    "minimax_m2": ToolFormat(
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        Tagged('<invoke name="', '">', '<parameter name="', '">', "</parameter>", call_end="</invoke>"),
    ),
    "glm": ToolFormat(
        "<tool_call>",
        "</tool_call>",
        Tagged("", "", "<arg_key>", "</arg_key>", "</arg_value>", "<arg_value>"),
        inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "kimi_k2": ToolFormat(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        NamedJson("<|tool_call_argument_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", kimi_name),
        special=True,
        inner=_KIMI_CALL,
    ),
}


class BegunCall:
    """The answer to a prompt that ends where the arguments of a call begin: all of it is arguments.

    Feeds and flush are those of ToolCallParser. Without any text there is no call.
    """

    def __init__(self, name: str, new_id: Callable[[], str]) -> None:
        self._name = name
        self._new_id = new_id
        self._is_open = False

    def feed(self, text: str) -> list[CallPiece]:
        if self._is_open:
            return [CallArguments(text)] if text else []
        text = text.lstrip()
        if not text:
            return []
        self._is_open = True
        return [CallStarted(self._new_id(), self._name), CallArguments(text)]

    def flush(self, *, is_cut: bool = False) -> list[CallPiece]:
        return [CallFinished()] if self._is_open else []


class ToolCallParser:
    """The same however the text is cut into feeds.

    declared: the names that may be called. new_id: makes an id for a call that brings none. types: what is known of the
    tools' parameters. parallel: with False, only the first call is given out; the text between and behind the others
    still is. must_call: the answer has to be calls, so what begins like a mark where it is cut is one.
    """

    def __init__(
        self,
        form: ToolFormat,
        declared: Collection[str],
        new_id: Callable[[], str],
        *,
        types: ParameterTypes = no_types,
        parallel: bool = True,
        must_call: bool = False,
    ) -> None:
        self._form = form
        self._must_call = must_call
        self._text = GrowingText()
        self._book = CallBook(self._text, declared, new_id, types=types, parallel=parallel)
        self._parse = self._run()

    def feed(self, text: str) -> list[CallPiece]:
        self._text.append(text)
        return self._resume()

    def flush(self, *, is_cut: bool = False) -> list[CallPiece]:
        """What was held back, at the end of the text. `is_cut`: its writer had not ended."""
        self._text.finish(is_cut=is_cut)
        return self._resume()

    def _resume(self) -> list[CallPiece]:
        next(self._parse, None)
        return self._book.take()

    def _run(self) -> Waits[None]:
        text, form, book = self._text, self._form, self._book
        if form.leads and (character := (yield from text.skip(WHITESPACE))) and character in form.leads:
            yield from self._calls(0)
        text.at = book.given
        marks = tuple(filter(None, (form.start, form.bare)))
        while not text.ended or text.at < text.end:
            places = [(place, mark) for mark in marks if (place := text.find(mark)) is not None]
            if not places:
                is_lost = self._must_call and text.is_cut
                settled = text.before_begun if is_lost else text.settled
                text.at = min(map(settled, marks), default=text.end)
                book.text_up_to(text.at)
                if not text.ended:
                    yield
                elif is_lost:
                    book.withheld()
            else:
                found, mark = min(places)
                book.text_up_to(text.without_breaks(found))
                text.at = found if mark == form.bare else found + len(mark)
                yield from self._calls(found + len(mark))

    def _calls(self, behind_mark: int) -> Waits[None]:
        """The calls behind a mark, and the mark that closes them. Without any, all up to `behind_mark` is text."""
        text, book, end = self._text, self._book, self._form.end
        before = book.given
        try:
            yield from self._form.syntax(book, end)
        except NotACall:
            is_whole = False
        else:
            is_whole = True
        if (behind_mark > 0 or book.given > before or self._must_call) and book.withheld():
            return  # the text ended in here, so all that is left of it is the beginning of what may stand here
        if book.given == before:
            book.text_up_to(behind_mark)
            text.at = behind_mark
            return
        text.at = book.given
        if end:
            yield from text.skip(_LEFT_OVER)
            is_whole = yield from text.goes_on_with(end)
            if is_whole:
                text.at += len(end)
                book.passed()
            elif book.withheld():
                return
        text.at = book.given
        if is_whole:
            yield from text.skip(LINE_BREAKS)
            book.passed()
        if not (yield from text.skip(WHITESPACE)):
            book.passed()
        text.at = book.given
