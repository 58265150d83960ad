"""How the next token is chosen, as numbers with ranges. Imports no torch; the arithmetic is in `sampler`."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from local_engine.errors import InvalidInput

__all__ = ["MAX_LOGPROBS", "MAX_WIDTH", "Dry", "SamplingDefaults", "SamplingParams"]

MAX_LOGPROBS = 256
MAX_WIDTH = 128
_MAX_TOKEN_ID = 2**31 - 1
_MAX_LISTED_IDS = 4096
# Dividing by less would overflow float32 logits.
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a model's own files recommend. None where they say nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Dry:
    """A penalty on what goes on with a repetition: DRY (text-generation-webui #5677, llama.cpp #9702).

    Where the last tokens, `allowed_length` of them at least, stood before, the token that followed there loses
    multiplier * base ** (their number - allowed_length) of its logit.

    last_n: they are looked for among so many last tokens of prompt and answer; None: among all.
    breakers, phrases: tokens, and sequences of tokens, that no repetition reaches over. A breaker is never penalised.
    """

    multiplier: float
    base: float = 1.75
    allowed_length: int = 2
    last_n: int | None = None
    breakers: frozenset[int] = frozenset()
    phrases: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        _check_float("dry_multiplier", self.multiplier, 0.0, 100.0, open_low=True)
        _check_float("dry_base", self.base, 1.0, 10.0)
        _check_int("dry_allowed_length", self.allowed_length, 0, 256)
        if self.last_n is not None:
            _check_int("dry_penalty_last_n", self.last_n, 0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's choice of tokens. Raises InvalidInput naming the parameter that is out of range.

    Order of operations on the logits: logit_bias, penalties and dry; allowed, bad and (before min_tokens) stop tokens;
    top_n_sigma; temperature; top_k; top_p over what top_k left; min_p relative to the likeliest token; typical_p and
    then xtc over what is left. Ties at a cut are kept. temperature_last: temperature comes behind all of them.

    max_tokens: None generates until a stop token or the end of the window. 0 only scores the prompt.
    temperature: 0 (anything below 1e-5) is greedy and ignores seed and cuts.
    top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    top_p_decay, top_p_min: top_p is multiplied by the decay after each token, and from the second one on is at least
        top_p_min (TensorRT-LLM's topPDecay and topPMin).
    typical_p: keeps the tokens whose information is nearest to the entropy until they hold this mass (Meister et al.,
        "Locally typical sampling", 2023). 1 is off.
    top_n_sigma: keeps logits that lie at most so many standard deviations of all of them below the largest (Tang et
        al., "Top-n sigma: not all logits are you need", 2024). 0 is off.
    xtc_probability, xtc_threshold: so often, of the tokens that have this probability all are ruled out but the least
        likely one (text-generation-webui #6335, llama.cpp #9742). 0 is off.
    dynatemp_range, dynatemp_exponent: the temperature is from temperature - range (where all is clear) to temperature
        + range (where nothing is), by the entropy's share of the largest possible one to the power of the exponent
        (llama.cpp #4972). 0 is off.
    repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or answer. 1 is off.
    presence_penalty, frequency_penalty: subtracted once, or per occurrence, for tokens of the answer alone.
    repeat_last_n: all three penalties are of this many last tokens, be they of prompt or answer (as llama.cpp's are).
    logit_bias: token id -> added to its logit. allowed_token_ids: None allows all.
    bad_words: sequences of token ids that the answer never contains.
    seed: same seed and request give the same tokens whatever shares the batch. None draws one.
    stop_token_ids: end the answer, beside the model's own. ignore_eos: the model's own do not end it.
    logprobs, prompt_logprobs: None is off, 0 reports the token alone, n adds the n likeliest. They are of the
        model's own distribution, before any bias, mask or temperature; -inf is reported as -9999.0.
    logprob_token_ids: with logprobs, tokens that are reported beside the likeliest ones.
    context_logits: report the raw logits at every position of the prompt.
    n, best_of: of `best_of` answers (None: as many as n) the n best are reported, best first, all at the end. Samples
        are ranked by their mean log-probability a token.
    beam_search: the answers are the beams of a search over the distribution that bias, penalties and masks leave;
        temperature, cuts and seed are ignored. A beam's score is its log-probability divided by its length, end token
        included, to the power of length_penalty. early_stopping: end with the best_of-th finished beam; without it,
        when the best live beam is worse than the worst finished one at its present length.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    top_p_decay: float = 1.0
    top_p_min: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    temperature_last: bool = False
    dry: Dry | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    context_logits: bool = False
    n: int = 1
    best_of: int | None = None
    beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 0, 2**31 - 1)
        _check_int("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidInput("min_tokens", f"{self.min_tokens} is more than max_tokens, {self.max_tokens}")
        _check_float("temperature", self.temperature, 0.0, 100.0)
        _check_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_int("top_k", self.top_k, 0, 2**31 - 1)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        _check_float("top_p_decay", self.top_p_decay, 0.0, 1.0, open_low=True)
        _check_float("top_p_min", self.top_p_min, 0.0, 1.0)
        _check_float("typical_p", self.typical_p, 0.0, 1.0, open_low=True)
        _check_float("top_n_sigma", self.top_n_sigma, 0.0, 100.0)
        _check_float("xtc_probability", self.xtc_probability, 0.0, 1.0)
        _check_float("xtc_threshold", self.xtc_threshold, 0.0, 1.0)
        _check_float("dynatemp_range", self.dynatemp_range, 0.0, 100.0)
        _check_float("dynatemp_exponent", self.dynatemp_exponent, 0.0, 100.0)
        _check_float("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        _check_float("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check_float("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if self.repeat_last_n is not None:
            _check_int("repeat_last_n", self.repeat_last_n, 0, 2**31 - 1)
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), 2**63 - 1)
        for name in ("ignore_eos", "context_logits", "beam_search", "early_stopping", "temperature_last"):
            if type(getattr(self, name)) is not bool:
                raise InvalidInput(name, f"must be true or false, not {getattr(self, name)!r}")
        self._check_token_lists()
        self._check_search()
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _check_int(name, count, 0, MAX_LOGPROBS)

    def _check_token_lists(self) -> None:
        _check_ids("logit_bias", self.logit_bias)
        for bias in self.logit_bias.values():
            _check_float("logit_bias", bias, -100.0, 100.0)
        if len(self.bad_words) > _MAX_LISTED_IDS or not all(self.bad_words):
            raise InvalidInput("bad_words", f"must be at most {_MAX_LISTED_IDS} words of one token or more")
        _check_ids("bad_words", [token_id for word in self.bad_words for token_id in word])
        _check_ids("stop_token_ids", self.stop_token_ids)
        _check_ids("logprob_token_ids", self.logprob_token_ids)
        if self.allowed_token_ids is not None:
            _check_ids("allowed_token_ids", self.allowed_token_ids)
            if not set(self.allowed_token_ids) - set(self.forbidden_ids):
                raise InvalidInput("allowed_token_ids", "leaves no token that may be generated")

    def _check_search(self) -> None:
        _check_int("n", self.n, 1, MAX_WIDTH)
        if self.best_of is not None:
            _check_int("best_of", self.best_of, 1, MAX_WIDTH)
            if self.best_of < self.n:
                raise InvalidInput("best_of", f"{self.best_of} is less than n, {self.n}")
        _check_float("length_penalty", self.length_penalty, -10.0, 10.0)

    @property
    def width(self) -> int:
        """The answers that are generated."""
        return self.n if self.best_of is None else self.best_of

    @property
    def forbidden_ids(self) -> tuple[int, ...]:
        """The bad words of one token."""
        return tuple(word[0] for word in self.bad_words if len(word) == 1)

    @property
    def phrases(self) -> tuple[tuple[int, ...], ...]:
        """The bad words of several tokens."""
        return tuple(word for word in self.bad_words if len(word) > 1)

    @property
    def drawn_apart(self) -> bool:
        """Tokens are drawn by more than temperature, top_k, top_p and min_p, which is what the kernels draw by."""
        return not self.greedy and (
            self.typical_p < 1.0
            or self.top_n_sigma > 0.0
            or self.xtc_probability > 0.0
            or self.dynatemp_range > 0.0
            or (self.temperature_last and self.temperature != 1.0)
        )

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def needs_host(self) -> bool:
        """A device alone cannot make one token after the other: the host decides, or hears of more than the token."""
        return (
            self.drawn_apart
            or self.dry is not None
            or (self.penalised and self.repeat_last_n is not None)
            or self.prompt_logprobs is not None
            or self.context_logits
            or self.beam_search
            or self.width > 1
            or bool(self.logprob_token_ids or self.phrases)
        )

    @property
    def greedy(self) -> bool:
        return self.temperature < _GREEDY_BELOW

    def token_ids(self) -> tuple[tuple[str, int], ...]:
        """Each token id that the request names, with its parameter: what admission holds against the vocabulary."""
        return tuple(
            (name, token_id)
            for name, ids in (
                ("logit_bias", self.logit_bias),
                ("allowed_token_ids", self.allowed_token_ids or ()),
                ("bad_words", tuple(token_id for word in self.bad_words for token_id in word)),
                ("stop_token_ids", self.stop_token_ids),
                ("logprob_token_ids", self.logprob_token_ids),
            )
            for token_id in ids
        )


def _check_int(param: str, value: object, low: int, high: int) -> None:
    # bool is an int to Python, and an int of 5,000 digits cannot be printed: neither may pass or be shown.
    if type(value) is not int:
        raise InvalidInput(param, f"must be an integer, not {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidInput(param, f"must be from {low} to {high}")


def _check_float(param: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if type(value) is not float and type(value) is not int:
        raise InvalidInput(param, f"must be a number, not {type(value).__name__}")
    finite = type(value) is int or math.isfinite(value)
    if not finite or not low <= value <= high or (open_low and value == low):
        bound = "above" if open_low else "from"
        raise InvalidInput(param, f"must be {bound} {low:g} up to {high:g}")


def _check_ids(param: str, ids: Collection[int]) -> None:
    if len(ids) > _MAX_LISTED_IDS:
        raise InvalidInput(param, f"names {len(ids)} tokens, at most {_MAX_LISTED_IDS} are taken")
    for token_id in ids:
        _check_int(param, token_id, 0, _MAX_TOKEN_ID)
