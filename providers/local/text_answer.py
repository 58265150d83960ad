"""Tokens of one choice to canonical events: detokenizer, then stop strings, with one flush through both at the end.

Owns when a token's logprob may go out: together with the text that it belongs to, so that text held back holds its
tokens back too. Knows no engine calls and no dialects.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from adapters.canonical.events import ChoiceFinished, Event, TextDelta
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, floor_logprob
from adapters.text.stop_strings import StopStrings
from local_engine.generation import StepOutput, TokenOutput
from providers.local.detokenizer import Detokenizer
from providers.local.local_model import LocalModel
from providers.local.tokenizer import Tokenizer

__all__ = ["TextAnswer", "token_logprob"]


class _HeldToken(NamedTuple):
    """A token and where its text lies, in characters of the whole answer. `end` None: inside a character."""

    start: int
    end: int | None
    token: TokenOutput


class TextAnswer:
    """The answer of one sequence as text part 0 of choice 0."""

    def __init__(self, model: LocalModel, request: Request) -> None:
        sampling = request.sampling
        self._tokenizer = model.tokenizer
        self._ends = model.stop_token_ids
        self._detokenizer = Detokenizer(model.tokenizer, skip_special_tokens=sampling.skip_special_tokens is not False)
        self._stops = StopStrings(sampling.stop or (), include=bool(sampling.include_stop))
        self._min_tokens = sampling.min_tokens or 0
        self._logprobs = request.logprobs is not None
        self._ids = bool(request.return_token_ids)
        self._held: deque[_HeldToken] = deque()
        self.completion_tokens = 0
        self.finished = False

    def feed(self, output: StepOutput) -> list[Event]:
        """The events of one output of the engine; the last one ends with ChoiceFinished."""
        pieces = []
        for token in output.tokens:
            self.completion_tokens += 1
            start = self._stops.total
            text = self._detokenizer.feed((token.token_id,))
            pieces.append(self._stops.feed(text, match=self.completion_tokens > self._min_tokens))
            if self._logprobs or self._ids:
                end = None if self._detokenizer.holds_bytes else self._stops.total
                self._held.append(_HeldToken(start, end, token))
            if self._stops.hit is not None:
                return self._end("".join(pieces), StopReason.STOP, "stop", self._stops.hit)
        text = "".join(pieces)
        if output.finish is None:
            return self._delta(text, self._shown())
        text += self._stops.feed(self._detokenizer.flush())
        if self._stops.hit is not None:
            return self._end(text, StopReason.STOP, "stop", self._stops.hit)
        text += self._stops.flush()
        if output.finish == "length":
            return self._end(text, StopReason.LENGTH, "length", None)
        end = output.stop_token_id
        return self._end(text, StopReason.STOP, "stop", None if end in self._ends else end)

    def _end(self, text: str, reason: StopReason, raw: str, stop: str | int | None) -> list[Event]:
        """Tokens that lie wholly behind the end of the shown text are dropped with it."""
        self.finished = True
        if self._stops.hit is None:
            shown = [held.token for held in self._held]
        else:
            shown = [held.token for held in self._held if held.start < self._stops.released]
        self._held.clear()
        return [*self._delta(text, shown), ChoiceFinished(0, reason, raw, stop)]

    def _shown(self) -> list[TokenOutput]:
        """The held tokens whose text is out. Tokens that share a character go out together."""
        count = 0
        for place, held in enumerate(self._held, 1):
            if held.end is not None and held.end <= self._stops.released:
                count = place
        return [self._held.popleft().token for _ in range(count)]

    def _delta(self, text: str, tokens: Sequence[TokenOutput]) -> list[Event]:
        if not text and not tokens:
            return []
        logprobs = tuple([token_logprob(self._tokenizer, token) for token in tokens]) if self._logprobs else ()
        ids = tuple([token.token_id for token in tokens]) if self._ids else ()
        return [TextDelta(0, 0, text, logprobs, ids)]


def token_logprob(tokenizer: Tokenizer, token: TokenOutput) -> TokenLogprob:
    """The token with its true bytes; each alternative is shown alone."""
    raw = tokenizer.token_bytes(token.token_id)
    return TokenLogprob(
        text=_printable(raw),
        logprob=None if token.logprob is None else floor_logprob(token.logprob),
        token_id=token.token_id,
        raw=raw,
        top=tuple([_alternative(tokenizer, token_id, logprob) for token_id, logprob in token.top]),
    )


def _alternative(tokenizer: Tokenizer, token_id: int, logprob: float) -> TopLogprob:
    raw = tokenizer.token_bytes(token_id)
    return TopLogprob(_printable(raw), floor_logprob(logprob), token_id, raw)


def _printable(raw: bytes) -> str:
    """The token's text; bytes that are no whole characters are spelled out, as OpenAI does."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in raw])
