"""What goes into a generator of tokens and what comes out, and the protocol that one satisfies.

Plain frozen data and no torch, so an engine may live in another process, and a scripted one can stand in for it.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from local_engine.sampling import SamplingParams

__all__ = ["EngineStats", "FinishReason", "GenerationRequest", "Generator", "StepOutput", "TokenOutput"]

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue.

    request_id: for the caller's records; it need not be unique.
    priority: lower runs first, among equals the earlier. Strict: a steady flow of lower numbers holds back higher ones.
    adapter: name of a LoRA adapter that was loaded; None is the model itself.
    cache_salt: keeps this request's KV blocks from being shared with requests of another salt.
    """

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    adapter: str | None = None
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """A token with its log-probability (natural logarithm).

    logprob is None when it was not asked for. `top` holds exactly the number of likeliest tokens asked for as
    (token id, logprob), best first; the token itself is among them only if it is one of the likeliest.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What is new of one sequence since its last output; several steps when the reader was busy.

    finish: set on the last output and on no other. "abort" when the engine closed under the request.
    stop_token_id: the token that ended the sequence. It is not among `tokens` and is not counted.
    prompt_logprobs: once, when asked for: an entry a prompt token, the first with logprob None.
    cached_tokens: prompt tokens whose KV came from the prefix cache.
    """

    tokens: tuple[TokenOutput, ...]
    finish: FinishReason | None
    stop_token_id: int | None
    prompt_logprobs: tuple[TokenOutput, ...] | None
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A moment of the engine. Counts of requests now, KV blocks, and totals since the start.

    blocks_used: blocks that sequences hold; those kept for the prefix cache alone are not among them.
    prefix_hits: of the prompt_tokens, those whose KV came from the prefix cache.
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

    async def aclose(self, *, drain: bool = False) -> None:
        """Takes no more requests, ends the running ones (or lets them end, with `drain`) and frees everything."""
