"""Answers of gpt-oss under constraint, in its harmony form (see `adapters.text.harmony`).

analysis? and then: the final message, or one call, which ends the turn
"""

from collections.abc import Sequence
from typing import Final

from adapters.canonical.request import Request
from providers.local.call_grammar import json_arguments
from providers.local.grammar_text import GrammarWriter
from providers.local.tool_grammar import bound_arguments, callable_tools

__all__ = ["harmony_answer", "harmony_calls"]

_ANALYSIS: Final = "<|channel|>analysis<|message|>"
_FINAL: Final = "<|channel|>final<|message|>"
_PREAMBLE: Final = "<|channel|>commentary<|message|>"
_END: Final = "<|end|>"
_NEXT: Final = "<|start|>assistant"


def harmony_calls(writer: GrammarWriter, request: Request) -> list[str]:
    """A call of each tool that the request allows."""
    calls = []
    for number, tool in callable_tools(request):
        arguments = bound_arguments(request, number, tool)
        header = f"<|channel|>commentary to=functions.{tool.name} <|constrain|>json<|message|>"
        calls.append(writer.rule(f"{writer.spelled(header)} {json_arguments(writer, arguments)}"))
    return calls


def harmony_answer(
    writer: GrammarWriter, wanted: str | None, calls: Sequence[str], *, is_forced: bool, opens_reasoning: bool
) -> str:
    """The whole answer. `wanted` is the expression for the final message, None for any text.

    is_forced: there is a call and no final message. opens_reasoning: the prompt ends inside the analysis.
    """
    turn_on = writer.spelled(_NEXT)
    ways = list(calls)
    if not is_forced:
        ways.append(f"{writer.spelled(_FINAL)} {writer.text() if wanted is None else wanted}")
    body = writer.rule(" | ".join(ways))
    if calls and not is_forced and wanted is None:  # what a model says to the user before it calls
        body = f"({writer.spelled(_PREAMBLE)} {writer.text_through(_END)} {turn_on})? {body}"
    thought = f"{writer.text_through(_END)} {turn_on}"
    return f"{thought} {body}" if opens_reasoning else f"({writer.spelled(_ANALYSIS)} {thought})? {body}"
