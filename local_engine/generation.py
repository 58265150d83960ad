"""What goes into a generator of tokens and what comes out, and the protocol that one satisfies.

Plain frozen data and no torch, so an engine may live in another process, and a scripted one can stand in for it.
"""

from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from local_engine.sampling import SamplingParams

__all__ = [
    "MAX_CONTEXT_LOGITS",
    "EngineStats",
    "FinishReason",
    "GenerationRequest",
    "Generator",
    "ImageInput",
    "StepOutput",
    "TokenMask",
    "TokenOutput",
]

FinishReason = Literal["stop", "length", "abort"]
MAX_CONTEXT_LOGITS: Final = 1 << 22
"""Numbers that the context logits of one request may have: 16 MiB."""


class TokenMask(Protocol):
    """What may come next in one answer, token by token: a grammar, say. The engine knows no more of it than this.

    Called by one worker at a time while steps are computed, and `fork` by the engine's own thread: a slow mask slows
    its own answer alone. Whatever a method raises fails its request alone.
    """

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        """Sets bit t % 32 of word t // 32 for each token id t that may come next, end tokens included.

        row: [ceil(V / 32)], all zero. Bits beyond the vocabulary are ignored.
        """

    def accept(self, token_id: int) -> bool:
        """Goes on by a token that was generated. True: the answer is complete and nothing may follow."""

    def fork(self) -> "TokenMask":
        """One in the same state that goes its own way. Cheap: a beam search calls it for each beam and token."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageInput:
    """One image of a prompt. Its tokens stand there from `start` on, as many as the model makes of an image.

    pixels: [3, height, width] float32, of a size that the model takes, normalised as it was trained. key: 32 bytes that
    no other content has.
    """

    start: int
    pixels: npt.NDArray[np.float32]
    key: bytes


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue.

    request_id: for the caller's records; it need not be unique.
    priority: lower runs first, among equals the earlier; see `scheduler` for what keeps higher ones from starving.
    adapter: name of a LoRA adapter that was loaded; None is the model itself.
    cache_salt: keeps this request's KV blocks from being shared with requests of another salt.
    mask: what the answer must look like; the request owns it. None: anything.
    ends: whether an answer, as its token ids so far, ends with the last of them: its text has a stop string, say. Asked
        only where several answers are generated, whose reader hears of them at the end. It must be quick.
    images: those of the prompt, in its order.
    """

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    adapter: str | None = None
    cache_salt: str | None = None
    mask: TokenMask | None = None
    ends: Callable[[SequenceOf[int]], bool] | None = None
    images: tuple[ImageInput, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """A token with its log-probability (natural logarithm).

    logprob is None where nothing needed it. `top` holds exactly the number of likeliest tokens asked for as
    (token id, logprob), best first; the token itself is among them only if it is one of the likeliest. Behind them
    stand the tokens that were asked for by id and are not among them. rank: of a prompt's token, 1 for the likeliest.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What is new of one sequence since its last output; several steps when the reader was busy.

    finish: set on the last output and on no other. "abort" when the engine closed under the request.
    stop_token_id: the token that ended the sequence. It is not among `tokens` and is not counted.
    prompt_logprobs: once, when asked for: an entry a prompt token, the first with logprob None.
    cached_tokens: prompt tokens whose KV came from the prefix cache.
    accepted_draft_tokens, rejected_draft_tokens: tokens that speculative decoding guessed right, or wrong, so far.
    context_logits: once, when asked for: [prompt tokens, V] float32.
    began_s: once, when its first step was planned, in seconds of the engine's clock.
    score: of one of several answers, what they are ranked by.
    others: the answers after this one, best first, where several were asked for; there is one output then.
    """

    tokens: tuple[TokenOutput, ...]
    finish: FinishReason | None
    stop_token_id: int | None
    prompt_logprobs: tuple[TokenOutput, ...] | None
    prompt_tokens: int
    cached_tokens: int
    accepted_draft_tokens: int = 0
    rejected_draft_tokens: int = 0
    context_logits: npt.NDArray[np.float32] | None = None
    began_s: float | None = None
    score: float | None = None
    others: tuple["StepOutput", ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A moment of the engine: sequences now, KV blocks, and totals since the start.

    finished, failed, aborted: requests.
    blocks_used: blocks that sequences hold; those kept for the prefix cache alone are not among them.
    prefix_hits: of the prompt_tokens, those whose KV came from the prefix cache.
    tokens_per_s: generated tokens, a mean over about the last ten seconds.
    accepted_draft_tokens, rejected_draft_tokens: what speculative decoding guessed right, and wrong.
    """

    running: int
    waiting: int
    paused: int
    blocks_used: int
    blocks_total: int
    prompt_tokens: int
    generated_tokens: int
    preemptions: int
    finished: int
    failed: int
    aborted: int
    prefix_hits: int
    tokens_per_s: float = 0.0
    accepted_draft_tokens: int = 0
    rejected_draft_tokens: int = 0


class Generator(Protocol):
    """Turns prompts into tokens. Satisfied by AsyncEngine, and by scripted engines in tests of other packages."""

    @property
    def max_context(self) -> int:
        """Positions one sequence may use, prompt and answer together."""

    @property
    def vocab_size(self) -> int:
        """Token ids run from 0 to this, exclusive."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[StepOutput, None]:
        """The answer, output by output, until one has `finish` set. Raises at its first step what admission refuses.

        Raises InvalidInput, UnknownAdapter, ContextOverflow, QueueFull or EngineClosed before the first output,
        GenerationFailed at any point. Cancelling it, or closing the iterator, frees what the request held.
        """

    @property
    def adapters(self) -> tuple[str, ...]:
        """The LoRA adapters that a request may name, in the order of their loads."""

    def load_adapter(self, name: str, folder: Path) -> None:
        """Reads a LoRA adapter that requests may name from then on. Blocks: run it in a thread.

        Raises InvalidInput for a name that cannot be or is taken, and ModelLoadError for files that cannot be used.
        """

    def unload_adapter(self, name: str) -> None:
        """From now on no request may name it; those that run keep it to their end. Raises UnknownAdapter."""

    def stats(self) -> EngineStats:
        """The present state; cheap, from any thread."""

    def when_failed(self, told: Callable[[str], object]) -> None:
        """`told` hears, from any thread, why the engine stopped by itself, once that has happened: it takes no more
        requests then and has freed what it held."""

    async def aclose(self, *, drain: bool = False) -> None:
        """Takes no more requests, ends the running ones (or lets them end, with `drain`) and frees everything."""
