"""A canonical request for one choice as the engine takes it: token ids and sampling numbers.

The request's own values go first, then the model's recommendations, then the API's defaults. The engine's refusals are
translated here, in one table.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from adapters.canonical.errors import (
    ContextOverflow,
    GatewayError,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    QueueFull,
    UnsupportedParameter,
)
from adapters.canonical.messages import Message, text_of
from adapters.canonical.request import REQUIRED, Request
from adapters.text.reasoning import ReasoningFormat
from local_engine import errors as engine_errors
from local_engine.sampling import SamplingParams
from providers.local.call_grammar import begun_call
from providers.local.local_model import LocalModel
from providers.local.template_messages import render_prompt
from providers.local.thinking import thinking_variables

__all__ = [
    "COMPLETION_MAX_TOKENS",
    "ModelPrompt",
    "ends_at_stop",
    "gateway_error",
    "model_prompt",
    "sampling_params",
]

T = TypeVar("T")

COMPLETION_MAX_TOKENS: Final = 16
"""What OpenAI's legacy completions default to; chat goes on to the end of the window."""
_CLIENTS_WORDS: Final = {"beam_search": "use_beam_search", "context_logits": "return_context_logits"}
"""Where the engine calls a parameter otherwise than clients do."""


class ModelPrompt(NamedTuple):
    """`opens_reasoning`: the prompt ends inside the model's reasoning, so the answer begins with the rest of it.
    `begun_call`: it ends inside a call of this tool, so the answer is its arguments."""

    ids: tuple[int, ...]
    opens_reasoning: bool = False
    begun_call: str | None = None


def model_prompt(model: LocalModel, request: Request) -> ModelPrompt:
    """The prompt as the engine takes it. Renders and tokenizes, so run it in a thread when the text may be long."""
    if request.messages is not None:
        return _chat_prompt(model, request, request.messages)
    (prompt,) = request.prompts or ("",)
    if isinstance(prompt, tuple):
        return ModelPrompt(prompt)
    special = request.template.add_special_tokens if request.template is not None else None
    return ModelPrompt(tuple(model.tokenizer.encode(prompt, add_special_tokens=special is not False)))


def _chat_prompt(model: LocalModel, request: Request, messages: Sequence[Message]) -> ModelPrompt:
    if model.template is None:
        raise UnsupportedParameter(
            f"messages: the model '{model.name}' has no chat template; use completions", param="messages"
        )
    _check_tools(model, request)
    kwargs = thinking_variables(model.template, model.formats.reasoning, request.reasoning)
    quote = model.tokenizer.quoted
    text = render_prompt(model.template, messages, request.tools, request.template, kwargs=kwargs, quote=quote)
    opens_reasoning = _ends_inside(model.formats.reasoning, text, request, messages)
    begun = None if opens_reasoning else _begun_call(model, request)
    if begun is not None:
        text += begun.text
    ids = tuple(model.tokenizer.encode(text, add_special_tokens=False, quoted=True))
    return ModelPrompt(ids, opens_reasoning, None if begun is None else begun.tool)


class _BegunCall(NamedTuple):
    tool: str
    text: str


def _begun_call(model: LocalModel, request: Request) -> _BegunCall | None:
    """The call of a tool that was chosen by name, which the prompt can begin: the model does not think first."""
    choice, effort = request.tool_choice, None if request.reasoning is None else request.reasoning.effort
    thinks = model.formats.reasoning is not None and effort != "none"
    if choice is None or choice.name is None or model.formats.tools is None or thinks:
        return None
    quote = model.tokenizer.quoted
    text = begun_call(model.formats.tools, quote(choice.name), quote(json.dumps(choice.name, ensure_ascii=False)))
    return None if text is None else _BegunCall(choice.name, text)


def _ends_inside(form: ReasoningFormat | None, prompt: str, request: Request, messages: Sequence[Message]) -> bool:
    """Whether the prompt, or the final message that is to be continued, has opened reasoning and not closed it."""
    if form is None:
        return False
    if request.template is not None and request.template.continue_final_message:
        begun = text_of(messages[-1].parts)
        return begun.rfind(form.start) > begun.rfind(form.end)
    return prompt.rstrip().endswith(form.start)


def _check_tools(model: LocalModel, request: Request) -> None:
    """A call can be read back only in a known form, and enforced only where the form can be written as a grammar."""
    if request.tools and not model.formats.reads_calls:
        raise UnsupportedParameter(
            f"tools: the form in which the model '{model.name}' writes tool calls is not known; set its tool_format",
            param="tools",
        )
    choice = request.tool_choice
    is_bound = choice is not None and (choice.mode == REQUIRED or choice.allowed is not None)
    if model.formats.has_channels and (is_bound or any(tool.strict for tool in request.tools or ())):
        raise UnsupportedParameter(
            f"tool_choice: calls of the model '{model.name}' cannot be enforced, nor can strict tools",
            param="tool_choice",
        )


def sampling_params(model: LocalModel, request: Request, *, prompt_tokens: int = 0) -> SamplingParams:
    """Raises the engine's InvalidInput for a number out of range.

    prompt_tokens: what a recommended length of the answer has to leave room for.
    """
    sampling, defaults = request.sampling, model.defaults
    max_tokens = request.max_tokens
    if max_tokens is None and defaults.max_tokens is not None:
        room = model.engine.max_context - prompt_tokens
        max_tokens = max(min(defaults.max_tokens, room), sampling.min_tokens or 0, 1)
    elif max_tokens is None and request.prompts is not None:
        max_tokens = COMPLETION_MAX_TOKENS
    top_p = _first(sampling.top_p, defaults.top_p, 1.0)
    top_k = max(0, _first(sampling.top_k, defaults.top_k, 0))
    echoed = request.logprobs if request.echo else None
    scored = [count for count in (echoed, request.prompt_logprobs) if count is not None]
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=sampling.min_tokens or 0,
        temperature=_first(sampling.temperature, defaults.temperature, 1.0),
        top_p=top_p or 1.0,
        top_k=top_k if top_p else 1,  # a top_p of 0 leaves the likeliest token
        top_p_min=sampling.top_p_min or 0.0,
        min_p=_first(sampling.min_p, defaults.min_p, 0.0),
        typical_p=_first(sampling.typical_p, None, 1.0),
        repetition_penalty=_first(sampling.repetition_penalty, defaults.repetition_penalty, 1.0),
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        logit_bias=sampling.logit_bias or {},
        allowed_token_ids=sampling.allowed_token_ids,
        bad_words=_bad_words(model, sampling.bad_words or ()),
        seed=sampling.seed,
        stop_token_ids=(*(sampling.stop_token_ids or ()), *(() if sampling.ignore_eos else model.formats.ends)),
        ignore_eos=sampling.ignore_eos or False,
        logprobs=request.logprobs,
        prompt_logprobs=max(scored, default=None),
        context_logits=request.return_context_logits or False,
        n=request.n or 1,
        best_of=request.best_of,
        beam_search=sampling.use_beam_search or False,
        length_penalty=_first(sampling.length_penalty, None, 1.0),
        early_stopping=sampling.early_stopping or False,
    )


def _bad_words(model: LocalModel, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Each word as the tokens that it may come in: inside a line, and behind a space."""
    encode = model.tokenizer.encode
    forms = [tuple(encode(form, add_special_tokens=False)) for word in words for form in (word, f" {word}") if word]
    if not all(words):
        raise engine_errors.InvalidInput("bad_words", f"item {words.index('')} is empty")
    return tuple(dict.fromkeys(form for form in forms if form))


def ends_at_stop(model: LocalModel, request: Request) -> Callable[[Sequence[int]], bool] | None:
    """Whether an answer's tokens complete a stop string of the request; None if it has none."""
    stops = [stop.encode() for stop in request.sampling.stop or ()]
    if not stops:
        return None
    token_bytes = model.tokenizer.token_bytes
    longest = max(map(len, stops))

    def ends(answer: Sequence[int]) -> bool:
        # It is asked after each token, so a stop string ends in the last one; each token has a byte at least.
        tail = b"".join([token_bytes(token_id) for token_id in answer[-longest:]])
        return any(stop in tail for stop in stops)

    return ends


def _first(value: T | None, other: T | None, default: T) -> T:
    if value is not None:
        return value
    return other if other is not None else default


def gateway_error(error: engine_errors.EngineError, request: Request) -> GatewayError:
    """The engine's error as the client is told of it."""
    match error:
        case engine_errors.ContextOverflow():
            limit_named = error.max_tokens is not None
            param = "max_tokens" if limit_named else ("messages" if request.messages is not None else "prompt")
            return ContextOverflow(f"{param}: {error}", param=param)
        case engine_errors.InvalidInput():
            param = _CLIENTS_WORDS.get(error.param, error.param)
            return InvalidRequest(f"{param}: {error.reason}", param=param)
        case engine_errors.UnknownAdapter():
            return ModelNotFound(f"the model '{request.model}:{error.name}' does not exist", param="model")
        case engine_errors.QueueFull():
            return QueueFull(str(error), retry_after_s=error.retry_after_s)
        case engine_errors.EngineClosed():
            return NotReady("the model is being stopped", retry_after_s=1)
        case _:
            return InternalError("the local engine could not finish this answer", code="generation_failed")
