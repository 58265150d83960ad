"""Tokens of one choice to canonical events: detokenizer, stop strings, then reasoning and tool calls where the model
writes them, with one flush through all of them at the end.

Owns where a token's logprob and id go out: with the text that it belongs to, so that text held back holds its tokens
back too. Where the text is taken apart, that is the delta with the first character of the token that is shown. Tokens
of marks, of tool calls and of hidden reasoning go out nowhere. Knows no engine calls and no dialects.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapters.canonical.events import ChoiceFinished, Event, ReasoningDelta, TextDelta
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, floor_logprob
from adapters.text.pipeline import HiddenReasoning, Passage, TextPipeline
from adapters.text.stop_strings import StopStrings
from local_engine.generation import StepOutput, TokenOutput
from providers.local.detokenizer import Detokenizer
from providers.local.engine_request import stop_marks
from providers.local.local_model import LocalModel
from providers.local.text_formats import shown_special_ids
from providers.local.tokenizer import Tokenizer

__all__ = ["TextAnswer", "token_logprob"]


class _HeldToken(NamedTuple):
    """A token and where its text lies, in characters of the whole answer. `end` None: inside a character."""

    start: int
    end: int | None
    token: TokenOutput


class TextAnswer:
    """The answer of one sequence as choice 0: text part 0, or the parts that `pipeline` finds in the text."""

    def __init__(self, model: LocalModel, request: Request, pipeline: TextPipeline | None = None) -> None:
        sampling = request.sampling
        self._tokenizer = model.tokenizer
        self._ends = model.stop_token_ids | model.formats.ends
        self._pipeline = pipeline
        self._detokenizer = Detokenizer(
            model.tokenizer,
            skip_special_tokens=sampling.skip_special_tokens is not False,
            shown=frozenset() if pipeline is None else shown_special_ids(model.formats, request),
        )
        self._marks = stop_marks(model.tokenizer, request)
        self._includes_stop = bool(sampling.include_stop)
        self._stops = StopStrings(sampling.stop or (), include=bool(sampling.include_stop))
        self._min_tokens = sampling.min_tokens or 0
        self._logprobs = request.logprobs is not None
        self._detokenizes = request.detokenize is not False
        self._shows_ids = bool(request.return_tokens_as_token_ids)
        self._ids = bool(request.return_token_ids) or not self._detokenizes
        self._reports_tokens = self._logprobs or self._ids
        counts_reasoning = pipeline is not None and pipeline.splits_reasoning
        self._unstopped = pipeline if counts_reasoning and sampling.stop else None
        """What knows where the model thinks, and so writes no stop strings."""
        self._holds = self._reports_tokens or counts_reasoning
        self._held: deque[_HeldToken] = deque()
        self.completion_tokens = 0
        self.reasoning_tokens: int | None = 0 if counts_reasoning else None
        """Tokens of the reasoning that is out, shown or not. None: the model marks none."""
        self.finished = False

    def feed(self, output: StepOutput) -> list[Event]:
        """The events of one output of the engine; the last one ends with ChoiceFinished."""
        pieces: list[str] = []
        passages: list[Passage] = []
        for token in output.tokens:
            self.completion_tokens += 1
            start = self._stops.total
            text = self._detokenizer.feed((token.token_id,)) if self._detokenizes else ""
            if self._unstopped is not None:
                passages += self._stop_behind_reasoning(text, self._unstopped)
            else:
                pieces.append(self._stops.feed(text, match=self.completion_tokens > self._min_tokens))
            if self._holds:
                end = None if self._detokenizer.holds_bytes else self._stops.total
                self._held.append(_HeldToken(start, end, token))
            if self._stops.hit is not None:
                return self._end("".join(pieces), passages, StopReason.STOP, "stop", self._stops.hit)
        text = "".join(pieces)
        if output.finish is not None:
            return self._finish(text, passages, output)
        if self._pipeline is not None:
            return self._parts([*passages, *self._pipeline.feed(text)])
        return self._delta(text, self._shown())

    def _stop_behind_reasoning(self, text: str, pipeline: TextPipeline) -> list[Passage]:
        """What the pipeline makes of text in which stop strings count where it is not thought. A token may end the
        reasoning and begin an answer, so what may be a stop is read character by character."""
        passages: list[Passage] = []
        is_one = pipeline.reasoning_is_over or self._stops.is_clear_of(text)
        for piece in (text,) if is_one else text:
            counts = self.completion_tokens > self._min_tokens and not pipeline.is_reasoning
            for passage in pipeline.feed(self._stops.feed(piece, match=counts)):
                last = passages[-1] if passages else None
                passages[-1:] = [passage] if last is None else _joined(last, passage)
            if self._stops.hit is not None:
                break
        return passages

    def _finish(self, text: str, passages: list[Passage], output: StepOutput) -> list[Event]:
        """The events of the last step, of which `text` and `passages` are not out yet."""
        if self._unstopped is not None:
            passages += self._stop_behind_reasoning(self._detokenizer.flush(), self._unstopped)
        else:
            text += self._stops.feed(self._detokenizer.flush())
        if self._stops.hit is not None:
            return self._end(text, passages, StopReason.STOP, "stop", self._stops.hit)
        text += self._stops.flush()
        if output.finish == "length":
            return self._end(text, passages, StopReason.LENGTH, "length", None)
        end = output.stop_token_id
        if end is not None and end in self._marks:
            mark = self._marks[end]
            return self._end(text + mark if self._includes_stop else text, passages, StopReason.STOP, "stop", mark)
        return self._end(text, passages, StopReason.STOP, "stop", None if end in self._ends else end)

    def _end(
        self, text: str, passages: list[Passage], reason: StopReason, raw: str, stop: str | int | None
    ) -> list[Event]:
        """Tokens that lie wholly behind the end of the shown text are dropped with it."""
        self.finished = True
        if self._pipeline is not None:
            passages += self._pipeline.feed(text)
            passages += self._pipeline.flush(is_cut=reason is StopReason.LENGTH)
            return self._end_parts(self._pipeline, passages, ChoiceFinished(0, reason, raw, stop))
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

    def _end_parts(self, pipeline: TextPipeline, passages: list[Passage], finish: ChoiceFinished) -> list[Event]:
        events = self._parts(passages)
        last = pipeline.last_part()
        if self._stops.hit is None and last is not None:  # what is left and has no text ends the last part
            rest = [held.token for held in self._held if held.start == self._stops.total]
            events += self._with_tokens(last, rest) if rest else []
        self._held.clear()
        if finish.reason is StopReason.STOP and pipeline.num_calls:
            finish = replace(finish, reason=StopReason.TOOL_CALLS)
        return [*events, finish]

    def _parts(self, passages: Sequence[Passage]) -> list[Event]:
        events: list[Event] = []
        for event, start, end in passages:
            match event:
                case TextDelta() | ReasoningDelta():
                    events += self._with_tokens(event, self._tokens_of(start, end))
                case HiddenReasoning():
                    self._count_reasoning(len(self._tokens_of(start, end)))
                case _:
                    events.append(event)
        return events

    def _tokens_of(self, start: int, end: int) -> list[TokenOutput]:
        """The held tokens of these characters. Those before them are dropped. One without text goes with the next."""
        tokens = []
        while self._held and self._held[0].start < end:
            held = self._held.popleft()
            if max(held.end or 0, held.start + 1) > start:
                tokens.append(held.token)
        return tokens

    def _with_tokens(self, delta: TextDelta | ReasoningDelta, tokens: Sequence[TokenOutput]) -> list[Event]:
        if type(delta) is ReasoningDelta:
            self._count_reasoning(len(tokens))
        if not self._reports_tokens:
            return [delta] if delta.text else []
        return [replace(delta, logprobs=self._logprobs_of(tokens), token_ids=self._ids_of(tokens))]

    def _count_reasoning(self, count: int) -> None:
        self.reasoning_tokens = (self.reasoning_tokens or 0) + count

    def _delta(self, text: str, tokens: Sequence[TokenOutput]) -> list[Event]:
        if not text and not tokens:
            return []
        if not self._reports_tokens:
            return [TextDelta(0, 0, text)]
        return [TextDelta(0, 0, text, self._logprobs_of(tokens), self._ids_of(tokens))]

    def _logprobs_of(self, tokens: Sequence[TokenOutput]) -> tuple[TokenLogprob, ...]:
        if not self._logprobs:
            return ()
        return tuple([token_logprob(self._tokenizer, token, shows_ids=self._shows_ids) for token in tokens])

    def _ids_of(self, tokens: Sequence[TokenOutput]) -> tuple[int, ...]:
        return tuple([token.token_id for token in tokens]) if self._ids else ()


def _joined(first: Passage, second: Passage) -> list[Passage]:
    """Two passages that follow each other, as one where they are pieces of one part."""
    match first.event, second.event:
        case (TextDelta() as one, TextDelta() as two) | (ReasoningDelta() as one, ReasoningDelta() as two):
            if one.part == two.part and first.end == second.start:
                return [Passage(replace(one, text=one.text + two.text), first.start, second.end)]
    return [first, second]


def token_logprob(tokenizer: Tokenizer, token: TokenOutput, *, shows_ids: bool = False) -> TokenLogprob:
    """The token with its true bytes; each alternative is shown alone. shows_ids: ids stand in place of texts."""
    raw = tokenizer.token_bytes(token.token_id)
    return TokenLogprob(
        text=_shown(token.token_id, raw, shows_ids=shows_ids),
        logprob=None if token.logprob is None else floor_logprob(token.logprob),
        token_id=token.token_id,
        raw=raw,
        top=tuple([_alternative(tokenizer, *one, shows_ids=shows_ids) for one in token.top]),
        rank=token.rank,
    )


def _alternative(tokenizer: Tokenizer, token_id: int, logprob: float, *, shows_ids: bool) -> TopLogprob:
    raw = tokenizer.token_bytes(token_id)
    return TopLogprob(_shown(token_id, raw, shows_ids=shows_ids), floor_logprob(logprob), token_id, raw)


def _shown(token_id: int, raw: bytes, *, shows_ids: bool) -> str:
    return f"token_id:{token_id}" if shows_ids else _printable(raw)


def _printable(raw: bytes) -> str:
    """The token's text; bytes that are no whole characters are spelled out, as OpenAI does."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in raw])
