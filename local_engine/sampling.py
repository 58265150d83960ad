"""How the next token is chosen, as numbers with ranges. Imports no torch; the arithmetic is in `sampler`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from local_engine.errors import InvalidInput

__all__ = ["MAX_LOGPROBS", "SamplingDefaults", "SamplingParams"]

MAX_LOGPROBS = 256
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


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's choice of tokens. Raises InvalidInput naming the parameter that is out of range.

    Order of operations on the logits: logit_bias and penalties; allowed, bad and (before min_tokens) stop tokens;
    temperature; top_k; top_p over what top_k left; min_p relative to the likeliest token. Ties at a cut are kept.

    max_tokens: None generates until a stop token or the end of the window. 0 only scores the prompt.
    temperature: 0 (anything below 1e-5) is greedy and ignores seed, top_k, top_p and min_p.
    top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or answer. 1 is off.
    presence_penalty, frequency_penalty: subtracted once, or per occurrence, for tokens of the answer alone.
    logit_bias: token id -> added to its logit. allowed_token_ids: None allows all. bad_token_ids: never generated.
    seed: same seed and request give the same tokens whatever shares the batch. None draws one.
    stop_token_ids: end the answer, beside the model's own. ignore_eos: the model's own do not end it.
    logprobs, prompt_logprobs: None is off, 0 reports the token alone, n adds the n likeliest. They are of the
        model's own distribution, before any bias, mask or temperature; -inf is reported as -9999.0.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    allowed_token_ids: tuple[int, ...] | None = None
    bad_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

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
        _check_float("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        _check_float("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check_float("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), 2**63 - 1)
        if type(self.ignore_eos) is not bool:
            raise InvalidInput("ignore_eos", f"must be true or false, not {self.ignore_eos!r}")
        self._check_token_lists()
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _check_int(name, count, 0, MAX_LOGPROBS)

    def _check_token_lists(self) -> None:
        _check_ids("logit_bias", self.logit_bias)
        for bias in self.logit_bias.values():
            _check_float("logit_bias", bias, -100.0, 100.0)
        _check_ids("bad_token_ids", self.bad_token_ids)
        _check_ids("stop_token_ids", self.stop_token_ids)
        if self.allowed_token_ids is not None:
            _check_ids("allowed_token_ids", self.allowed_token_ids)
            if not set(self.allowed_token_ids) - set(self.bad_token_ids):
                raise InvalidInput("allowed_token_ids", "leaves no token that may be generated")

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
                ("bad_token_ids", self.bad_token_ids),
                ("stop_token_ids", self.stop_token_ids),
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


def _check_ids(param: str, ids: Mapping[int, float] | tuple[int, ...]) -> None:
    if len(ids) > _MAX_LISTED_IDS:
        raise InvalidInput(param, f"names {len(ids)} tokens, at most {_MAX_LISTED_IDS} are taken")
    for token_id in ids:
        _check_int(param, token_id, 0, _MAX_TOKEN_ID)
