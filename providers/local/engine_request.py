"""A canonical request for one choice as the engine takes it: token ids and sampling numbers.

The request's own values go first, then the model's recommendations, then the API's defaults. The engine's refusals are
translated here, in one table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from adapters.canonical.errors import (
    ContextOverflow,
    GatewayError,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    QueueFull,
)
from adapters.canonical.request import Request, Sampling
from local_engine import errors as engine_errors
from local_engine.sampling import Dry, SamplingParams
from providers.local.local_model import LocalModel
from providers.local.tokenizer import Tokenizer

__all__ = [
    "COMPLETION_MAX_TOKENS",
    "MAX_STOP_CHARACTERS",
    "ends_at_stop",
    "gateway_error",
    "sampling_params",
    "stop_marks",
]

T = TypeVar("T")

COMPLETION_MAX_TOKENS: Final = 16
"""What OpenAI's legacy completions default to; chat goes on to the end of the window."""
MAX_STOP_CHARACTERS: Final = 8192
"""Of all stop strings of a request: an answer is matched with a table of as many rows, which a client may not grow."""
_BREAKERS: Final = ("\n", ":", '"', "*")
"""What no repetition reaches over where a request does not say it, as in llama.cpp."""
_CLIENTS_WORDS: Final = {"beam_search": "use_beam_search", "context_logits": "return_context_logits"}
"""Where the engine calls a parameter otherwise than clients do."""


def sampling_params(model: LocalModel, request: Request, *, prompt_tokens: int = 0) -> SamplingParams:
    """Raises the engine's InvalidInput for a number out of range.

    prompt_tokens: what a length that is recommended, or that may be less, has to leave room for.
    """
    sampling, defaults = request.sampling, model.defaults
    if request.logprob_token_ids and request.logprobs is None:
        raise engine_errors.InvalidInput("logprob_token_ids", "allowed only with logprobs")
    length = sum(map(len, sampling.stop or ()))
    if length > MAX_STOP_CHARACTERS:
        raise engine_errors.InvalidInput("stop", f"has {length} characters, at most {MAX_STOP_CHARACTERS} are taken")
    top_p = _first(sampling.top_p, defaults.top_p, 1.0)
    top_k = max(0, _first(sampling.top_k, defaults.top_k, 0))
    echoed = request.logprobs if request.echo and request.prompts is not None else None
    scored = [count for count in (echoed, request.prompt_logprobs) if count is not None]
    return SamplingParams(
        max_tokens=_max_tokens(request, model.defaults.max_tokens, room=model.engine.max_context - prompt_tokens),
        min_tokens=sampling.min_tokens or 0,
        temperature=_first(sampling.temperature, defaults.temperature, 1.0),
        top_p=top_p or 1.0,
        top_k=top_k if top_p else 1,  # a top_p of 0 leaves the likeliest token
        top_p_min=sampling.top_p_min or 0.0,
        min_p=_first(sampling.min_p, defaults.min_p, 0.0),
        typical_p=_first(sampling.typical_p, None, 1.0),
        top_n_sigma=max(sampling.top_n_sigma or 0.0, 0.0),
        xtc_probability=sampling.xtc_probability or 0.0,
        xtc_threshold=_first(sampling.xtc_threshold, None, 0.1),
        dynatemp_range=sampling.dynatemp_range or 0.0,
        dynatemp_exponent=_first(sampling.dynatemp_exponent, None, 1.0),
        temperature_last=sampling.temperature_last or False,
        dry=_dry(model, sampling),
        repetition_penalty=_first(sampling.repetition_penalty, defaults.repetition_penalty, 1.0),
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        repeat_last_n=_last(sampling.repeat_last_n),
        logit_bias=sampling.logit_bias or {},
        allowed_token_ids=sampling.allowed_token_ids,
        bad_words=_bad_words(model.tokenizer, sampling.bad_words or ()),
        seed=sampling.seed,
        stop_token_ids=(
            *(sampling.stop_token_ids or ()),
            *stop_marks(model.tokenizer, request),
            *(() if sampling.ignore_eos else model.formats.ends),
        ),
        ignore_eos=sampling.ignore_eos or False,
        logprobs=request.logprobs,
        logprob_token_ids=request.logprob_token_ids or (),
        prompt_logprobs=max(scored, default=None),
        context_logits=request.return_context_logits or False,
        n=request.n or 1,
        best_of=request.best_of,
        beam_search=sampling.use_beam_search or False,
        length_penalty=_first(sampling.length_penalty, None, 1.0),
        early_stopping=sampling.early_stopping or False,
    )


def _max_tokens(request: Request, recommended: int | None, *, room: int) -> int | None:
    """What the client asks for, or else what is recommended, as far as there is room for it."""
    asked = request.max_tokens
    if asked is not None:
        return min(asked, max(room, 1)) if request.open_ended else asked
    if recommended is None and request.prompts is not None and not request.open_ended:
        recommended = COMPLETION_MAX_TOKENS
    return None if recommended is None else max(min(recommended, room), request.sampling.min_tokens or 0, 1)


def stop_marks(tokenizer: Tokenizer, request: Request) -> Mapping[int, str]:
    """The stop strings of the request that are special tokens: an answer's text leaves these out, so none is found in
    it."""
    found: dict[int, str] = {}
    for stop in request.sampling.stop or ():
        ids = tokenizer.encode(stop, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            found[ids[0]] = stop
    return found


def _bad_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    if not all(words):
        raise engine_errors.InvalidInput("bad_words", f"item {words.index('')} is empty")
    return _forms(tokenizer, words)


def _forms(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Each word as the tokens that it may come in: inside a line, and behind a space."""
    encode = tokenizer.encode
    forms = [tuple(encode(form, add_special_tokens=False)) for word in words for form in (word, f" {word}")]
    return tuple(dict.fromkeys(form for form in forms if form))


def _last(count: int | None) -> int | None:
    """-1: all."""
    return None if count == -1 else count


def _dry(model: LocalModel, sampling: Sampling) -> Dry | None:
    if not sampling.dry_multiplier or sampling.dry_penalty_last_n == 0:
        return None
    texts = [text for text in _first(sampling.dry_sequence_breakers, None, _BREAKERS) if text]
    return Dry(
        multiplier=sampling.dry_multiplier,
        base=_first(sampling.dry_base, None, 1.75),
        allowed_length=_first(sampling.dry_allowed_length, None, 2),
        last_n=_last(sampling.dry_penalty_last_n),
        breakers=frozenset[int]().union(*(model.tokenizer.tokens_with(text) for text in texts)),
        phrases=tuple(form for form in _forms(model.tokenizer, texts) if len(form) > 1),
    )


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
            return ContextOverflow.at(param, str(error))
        case engine_errors.InvalidInput():
            param = _CLIENTS_WORDS.get(error.param, error.param)
            return InvalidRequest.at(param, f"{error.reason}")
        case engine_errors.UnknownAdapter():
            why = "no adapter of that name is loaded; run.yaml names them"
            return ModelNotFound(f"the model '{request.model}:{error.name}' does not exist: {why}", param="model")
        case engine_errors.NothingAllowed():
            return _contradiction(request)
        case engine_errors.TooFewAnswers():
            why = f"with what else the request asks of the answer there are {error.found}, not {error.wanted}"
            return InvalidRequest.at("n", why)
        case engine_errors.QueueFull():
            return QueueFull(str(error), retry_after_s=error.retry_after_s)
        case engine_errors.EngineClosed():
            return NotReady("the model is stopping, or has stopped", retry_after_s=1)
        case _:
            return InternalError("the local engine could not finish this answer", code="generation_failed")


def _contradiction(request: Request) -> InvalidRequest:
    """Of the rules that leave no token, the one that the client is likeliest to have meant otherwise."""
    sampling = request.sampling
    rules = {
        "allowed_token_ids": sampling.allowed_token_ids,
        "bad_words": sampling.bad_words,
        "min_tokens": sampling.min_tokens,
    }
    param = next((name for name, value in rules.items() if value), None)
    beside = "" if param is None else f"{param}: "
    return InvalidRequest(
        f"{beside}with what else the request asks of the answer, no token is left that may come next", param=param
    )
