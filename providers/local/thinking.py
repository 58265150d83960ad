"""How much a local model is to think: what its template is told, and the bound that its answer is held to.

Owns the names of the variables by which templates switch thinking, one table. Knows no engine calls.
"""

from collections.abc import Mapping
from typing import Final

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import ReasoningOptions, Request
from adapters.text.harmony import HARMONY_NEXT, HARMONY_REASONING, HarmonyReader
from adapters.text.reasoning import ReasoningFormat, ReasoningSplitter
from local_engine.generation import TokenMask
from providers.local.chat_template import ChatTemplate
from providers.local.detokenizer import Detokenizer
from providers.local.text_formats import TextFormats, shown_special_ids
from providers.local.thinking_budget import ReasoningWatch, ThinkingBudget
from providers.local.tokenizer import Tokenizer

__all__ = ["budget_mask", "reads_effort", "thinking_variables"]

_EFFORT: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget"
_SWITCHES: Final = ("enable_thinking", "thinking")
"""Variables of templates that turn thinking on and off."""
_NO_EFFORT: Final = "none"
_ADAPTIVE: Final = "adaptive"
"""Thinking is on, and how much is the model's choice."""


def reads_effort(template: ChatTemplate) -> bool:
    """Whether the model can be told how much to think."""
    return not template.variables.isdisjoint((_EFFORT, *_SWITCHES))


def thinking_variables(
    template: ChatTemplate, form: ReasoningFormat | None, options: ReasoningOptions | None
) -> Mapping[str, object]:
    """The template's variables for what is asked. One that knows on and off only is off for no effort alone, and a
    budget of 0 is no effort. Raises UnsupportedParameter for what the model can't be told.
    """
    if options is None:
        return {}
    if options.mode not in (None, _ADAPTIVE):
        raise UnsupportedParameter.at("thinking", f"this model does not think in the mode {options.mode}")
    known: dict[str, object] = {}
    effort, budget = options.effort, options.budget_tokens
    if effort is not None:
        _check_effort(template, form, effort)
        known = {_EFFORT: effort, **dict.fromkeys(_SWITCHES, effort != _NO_EFFORT)}
    elif options.mode == _ADAPTIVE or budget is not None:
        known = dict.fromkeys(_SWITCHES, budget != 0)
    if budget is not None:
        known[_BUDGET] = budget
    return {name: value for name, value in known.items() if name in template.variables}


def _check_effort(template: ChatTemplate, form: ReasoningFormat | None, effort: str) -> None:
    if form is None and effort == _NO_EFFORT:
        return  # it never thinks: known of a model that was not loaded when it was chosen only now
    if not reads_effort(template):
        raise UnsupportedParameter.at(_EFFORT, "this model cannot be told how much to think")
    if form is not None and form.efforts and effort not in form.efforts:
        raise UnsupportedParameter.at(_EFFORT, f"this model takes {', '.join(form.efforts)} only")


def budget_mask(
    formats: TextFormats, tokenizer: Tokenizer, request: Request, *, opens_reasoning: bool, inner: TokenMask | None
) -> TokenMask | None:
    """The mask that keeps the answer's reasoning within the asked number of tokens, around one that holds as well.

    opens_reasoning: the prompt ends inside the reasoning.
    """
    budget = None if request.reasoning is None else request.reasoning.budget_tokens
    form = formats.reasoning
    if budget is None or form is None or request.messages is None:
        return inner
    if request.sampling.use_beam_search:
        raise UnsupportedParameter.at("thinking_token_budget", "not together with use_beam_search")
    shown = shown_special_ids(formats, request)

    def reader() -> ReasoningSplitter | HarmonyReader:
        if form.channels:
            return HarmonyReader((), str)
        return ReasoningSplitter(form, starts_inside=opens_reasoning)

    closing, not_next = form.end, None
    if inner is None and request.tools and form.channels:  # the next message may be a call, but no more thoughts
        closing += HARMONY_NEXT
        not_next = tokenizer.encode(HARMONY_REASONING, add_special_tokens=False)[0]
    elif inner is None:
        closing += form.answer
    ids = tuple(tokenizer.encode(closing, add_special_tokens=False))
    watch = ReasoningWatch(reader, lambda: Detokenizer(tokenizer, shown=shown), ids, not_next)
    return ThinkingBudget(watch, budget, inner)
