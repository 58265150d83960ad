"""A generator of tokens that says what a test tells it, and a vocabulary that tests make as they go.

    vocabulary = Vocabulary()
    engine = ScriptedEngine(Script.pieces(vocabulary, ["Hel", "lo"]), vocab_size=vocabulary.vocab_size)

Answers are given in turn, one for each request; the last one repeats. A request with a seed that has a script of its
own gets that one, whatever its turn is.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from local_engine.errors import ContextOverflow, EngineClosed, EngineError, InvalidInput, UnknownAdapter
from local_engine.generation import EngineStats, FinishReason, GenerationRequest, StepOutput, TokenOutput
from local_engine.sampling import MAX_LOGPROBS

__all__ = ["BOS_ID", "EOS_ID", "Script", "ScriptedEngine", "Vocabulary"]

EOS_ID = 256
BOS_ID = 257
_PLAIN_LOGPROB = -0.5
"""Of a token whose script has no logits."""


class Vocabulary:
    """A `Tokenizer`: ids 0 to 255 are the bytes, then an end and a begin marker, then the pieces that were added.

    Text is encoded by the longest piece that fits, and by bytes where none does; ids stay valid when pieces are added.
    """

    bos_id: int | None = BOS_ID
    eos_ids = frozenset((EOS_ID,))
    bos_token = "<s>"
    eos_token = "</s>"
    vocab_size = 4096

    def __init__(self, pieces: Iterable[str | bytes] = ()) -> None:
        self._pieces: list[bytes] = [bytes((value,)) for value in range(256)] + [b"</s>", b"<s>"]
        self._ids = {piece: index for index, piece in enumerate(self._pieces)}
        self._longest = 1
        for piece in pieces:
            self.add(piece)

    def add(self, piece: str | bytes) -> int:
        """The id of a piece, which is made if need be."""
        raw = piece.encode() if isinstance(piece, str) else piece
        known = self._ids.get(raw)
        if known is not None:
            return known
        index = self._ids[raw] = len(self._pieces)
        assert index < self.vocab_size
        self._pieces.append(raw)
        self._longest = max(self._longest, len(raw))
        return index

    def quoted(self, text: str) -> str:
        return text

    def encode(self, text: str, *, add_special_tokens: bool, quoted: bool = False) -> list[int]:
        raw = text.encode()
        found = [BOS_ID] if add_special_tokens else []
        at = 0
        while at < len(raw):
            size = next(size for size in range(self._longest, 0, -1) if raw[at : at + size] in self._ids)
            found.append(self._ids[raw[at : at + size]])
            at += len(self._pieces[found[-1]])
        return found

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""

    def tokens_with(self, text: str) -> frozenset[int]:
        return frozenset(token for token in range(self.vocab_size) if text.encode() in self.token_bytes(token))

    def is_special(self, token_id: int) -> bool:
        return token_id in (EOS_ID, BOS_ID)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, markers included."""
        return b"".join(map(self.token_bytes, ids)).decode()


@dataclass(frozen=True, kw_only=True)
class Script:
    """One answer: `steps` are the token ids of each output, `finish` how it ends then ("stop": by the end token).

    `logits` are of every position, by token id; what they leave out has no chance. Without them the emitted token has
    a logprob of -0.5 and the alternatives are less likely ones in order of their ids. `gate` holds the answer back
    after `gate_after` steps until it is set. `error` is raised in place of the finish.
    """

    steps: Sequence[Sequence[int]]
    finish: FinishReason = "stop"
    logits: Mapping[int, float] | None = None
    gate: asyncio.Event | None = None
    gate_after: int = 0
    error: EngineError | None = None

    @staticmethod
    def pieces(vocabulary: Vocabulary, pieces: Iterable[str | bytes], *, finish: FinishReason = "stop") -> "Script":
        """A token each, one a step."""
        return Script(steps=[(vocabulary.add(piece),) for piece in pieces], finish=finish)


@dataclass
class _Counts:
    running: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class ScriptedEngine:
    """A `Generator` without a model. `requests` are those admitted so far, in order.

    It admits by the real engine's rules on windows and token ids, cuts at max_tokens, and ends at stop_token_ids.
    """

    def __init__(self, *scripts: Script, vocab_size: int = Vocabulary.vocab_size, max_context: int = 4096) -> None:
        self.scripts = list(scripts)
        self.by_seed: dict[int, Script] = {}
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.requests: list[GenerationRequest] = []
        self._adapters: dict[str, Path] = {}
        self._told: list[Callable[[str], object]] = []
        self._next = 0
        self._counts = _Counts()
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()

    def script(self, *scripts: Script, by_seed: Mapping[int, Script] | None = None) -> Self:
        """From now on, these are the answers."""
        self.scripts = list(scripts)
        self.by_seed = dict(by_seed or {})
        self._next = 0
        return self

    async def until(self, condition: Callable[[EngineStats], bool], within_s: float = 2.0) -> None:
        """Returns when the state is as wanted."""
        async with asyncio.timeout(within_s):
            while not condition(self.stats()):
                self._changed.clear()
                await self._changed.wait()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[StepOutput, None]:
        self._admit(request)
        script = self._choose(request)
        self.requests.append(request)
        counts = self._counts
        counts.running += 1
        counts.prompt_tokens += len(request.prompt)
        self._changed.set()
        ended = False
        try:
            async for output in self._outputs(request, script):
                ended = output.finish is not None
                counts.generated_tokens += len(output.tokens)
                yield output
        except EngineError:
            counts.failed += 1
            ended = True
            raise
        finally:
            counts.running -= 1
            counts.finished += ended
            counts.aborted += not ended
            self._changed.set()

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(self._adapters)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Takes any folder."""
        self._adapters[name] = folder

    def unload_adapter(self, name: str) -> None:
        if self._adapters.pop(name, None) is None:
            raise UnknownAdapter(name)

    def stats(self) -> EngineStats:
        counts = self._counts
        return EngineStats(
            running=counts.running,
            waiting=0,
            paused=0,
            blocks_used=counts.running,
            blocks_total=1024,
            prompt_tokens=counts.prompt_tokens,
            generated_tokens=counts.generated_tokens,
            preemptions=0,
            finished=counts.finished,
            failed=counts.failed,
            aborted=counts.aborted,
            prefix_hits=0,
        )

    def when_failed(self, told: Callable[[str], object]) -> None:
        self._told.append(told)

    def fail(self, why: str) -> None:
        """Stops as an engine with a defect does."""
        for told in self._told:
            told(why)

    async def aclose(self, *, drain: bool = False) -> None:
        """Ends what waits at a gate as the real engine ends what runs."""
        self._closing.set()

    def _admit(self, request: GenerationRequest) -> None:
        """Raises what the real engine raises."""
        if self._closing.is_set():
            raise EngineClosed("the engine is closed")
        if not request.prompt:
            raise InvalidInput("prompt", "must have at least one token")
        if request.adapter is not None and request.adapter not in self._adapters:
            raise UnknownAdapter(request.adapter)
        named = (*(("prompt", token) for token in request.prompt), *request.sampling.token_ids())
        for param, token in named:
            if not 0 <= token < self.vocab_size:
                raise InvalidInput(param, f"token {token} is outside the vocabulary of {self.vocab_size}")
        length, limit = len(request.prompt), request.sampling.max_tokens
        if length >= self.max_context:
            raise ContextOverflow(prompt_tokens=length, limit=self.max_context)
        if limit is not None and length + limit > self.max_context:
            raise ContextOverflow(prompt_tokens=length, limit=self.max_context, max_tokens=limit)

    def _choose(self, request: GenerationRequest) -> Script:
        seed = request.sampling.seed
        if seed is not None and seed in self.by_seed:
            return self.by_seed[seed]
        script = self.scripts[min(self._next, len(self.scripts) - 1)]
        self._next += 1
        return script

    async def _outputs(self, request: GenerationRequest, script: Script) -> AsyncGenerator[StepOutput, None]:
        sampling = request.sampling
        room = self.max_context - len(request.prompt) if sampling.max_tokens is None else sampling.max_tokens
        scored = _prompt_logprobs(request, script)
        for number, step in enumerate(script.steps):
            if script.gate is not None and script.gate_after == number and not await self._passes(script.gate):
                yield StepOutput((), "abort", None, scored, len(request.prompt), 0)
                return
            await asyncio.sleep(0)  # another request's step may come between
            if room == 0:
                break
            ids = list(step[:room])
            stop = next((place for place, token in enumerate(ids) if token in sampling.stop_token_ids), None)
            room -= len(ids)
            tokens = tuple([_token(token, script, sampling.logprobs) for token in ids[:stop]])
            if stop is not None:
                yield StepOutput(tokens, "stop", ids[stop], scored, len(request.prompt), 0)
                return
            yield StepOutput(tokens, None, None, scored, len(request.prompt), 0)
            scored = None
        if script.gate is not None and script.gate_after >= len(script.steps) and not await self._passes(script.gate):
            yield StepOutput((), "abort", None, scored, len(request.prompt), 0)
            return
        if script.error is not None:
            raise script.error
        finish: FinishReason = "length" if room == 0 else script.finish
        yield StepOutput((), finish, EOS_ID if finish == "stop" else None, scored, len(request.prompt), 0)

    async def _passes(self, gate: asyncio.Event) -> bool:
        """Waits at the gate; False when the engine is closed under the request."""
        waits = [asyncio.ensure_future(gate.wait()), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._closing.is_set()


def _prompt_logprobs(request: GenerationRequest, script: Script) -> tuple[TokenOutput, ...] | None:
    count = request.sampling.prompt_logprobs
    if count is None:
        return None
    first, *rest = request.prompt
    return (TokenOutput(first, None, ()), *[_token(token, script, count) for token in rest])


def _token(token: int, script: Script, count: int | None) -> TokenOutput:
    if count is None:
        return TokenOutput(token, None, ())
    assert 0 <= count <= MAX_LOGPROBS
    if script.logits is None:
        others = (other for other in range(count + 1) if other != token)
        ranked = [(token, _PLAIN_LOGPROB), *((other, _PLAIN_LOGPROB - 1 - rank) for rank, other in enumerate(others))]
        return TokenOutput(token, _PLAIN_LOGPROB, tuple(ranked[:count]))
    normal = math.log(sum(map(math.exp, script.logits.values())))
    scores = {other: logit - normal for other, logit in script.logits.items()}
    ranked = sorted(scores.items(), key=lambda entry: -entry[1])
    return TokenOutput(token, scores.get(token, -math.inf), tuple(ranked[:count]))
