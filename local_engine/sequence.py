"""One answer on its way through the engine: its tokens, its KV blocks and what has been computed. Knows no tensors.

A request is one sequence, or several that continue one prompt and share its blocks: the beams of a beam search, the
samples of which the best are kept.

A token list is never cut: after a preemption the blocks are gone and `num_computed` is 0, so prompt and answer so far
are prefilled again, save for what the prefix cache still has, and decoding is merely the case where one token is left
to compute. A step may be planned before the results of the one before are known: the tokens that it follows are then
counted (`num_pending`), and known to the device alone.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from local_engine.adapters import Adapter
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.images import PlacedImage
from local_engine.mask_feed import MaskFeed

__all__ = ["Sequence"]

_FIRST = -(2**31) - 1


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one answer; the engine's thread owns it.

    arrival: counts up with each request. member: counts up with the sequences of one request.
    seed: 64 bits, the request's own or one drawn for it.
    stop_ids: all tokens that end it. max_tokens: the request's, or what the window leaves.
    root: what the keys of its blocks begin with; see `prefix_keys`. adapter: the load of it that it began with.
    images: those of its prompt, in order. uncut: the spans that one step has to compute whole, since their positions
        see each other.
    state, next_state: slots of a model with recurrent layers: of the state behind its computed tokens, and of the one
        that the next step writes; 0 is the state before all tokens, and none.
    num_shared: tokens whose blocks were cached when it began, be it behind fewer: as far as the last state among them.
    cached_tokens: prompt tokens that the prefix cache had when it first ran; None before. began_s: when that was.
    paused: its reader is slow. parked: it waits for something outside the pool: its mask, or the others of its search.
    masked: the state of its request's mask. accepted_drafts, rejected_drafts: of the tokens that were guessed for it.
    reported: what was asked about the prompt is out.
    promoted: it was passed over often enough to go first from now on, whatever its priority.
    num_pending: tokens of steps that are under way. epoch: counts its preemptions, which void such steps.
    needs_host: its next step can only be planned when its tokens are known, or more than a token is wanted of a step.
    """

    request: GenerationRequest
    arrival: int
    seed: int
    stop_ids: frozenset[int]
    max_tokens: int
    root: bytes = b""
    adapter: Adapter | None = None
    images: tuple[PlacedImage, ...] = ()
    uncut: tuple[tuple[int, int], ...] = ()
    member: int = 0
    tokens: list[int] = field(init=False)
    keys: list[bytes] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    state: int = 0
    next_state: int = 0
    num_shared: int = 0
    cached_tokens: int | None = None
    began_s: float | None = None
    paused: bool = False
    parked: bool = False
    promoted: bool = False
    done: bool = False
    num_pending: int = 0
    epoch: int = 0
    needs_host: bool = field(init=False)
    prompt_scores: list[TokenOutput] = field(default_factory=list)
    reported: bool = False
    context_logits: list[npt.NDArray[np.float32]] = field(default_factory=list)
    masked: MaskFeed | None = None
    accepted_drafts: int = 0
    rejected_drafts: int = 0
    # Of one of several answers: how many of its likeliest next tokens are asked for (0: one is drawn), its tokens with
    # their log-probabilities, and the sum of these.
    num_candidates: int = 0
    outputs: list[TokenOutput] = field(default_factory=list)
    logprob: float = 0.0
    # Tokens seen anywhere and counted in the answer; kept only for requests with penalties.
    seen: set[int] = field(default_factory=set)
    answer_counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        self.needs_host = self.max_tokens == 0 or self.request.mask is not None or self.request.sampling.needs_host
        if self.penalised:
            self.seen.update(self.tokens)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sorts the sequence to serve first to the front."""
        return (self.priority, self.arrival, self.member)

    @property
    def priority(self) -> int:
        """The request's, lower first; below all of them once it is promoted."""
        return _FIRST if self.promoted else self.request.priority

    @property
    def idle(self) -> bool:
        """No step can advance it now."""
        return self.paused or self.parked

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def length(self) -> int:
        """Its tokens, known or pending."""
        return len(self.tokens) + self.num_pending

    @property
    def num_uncomputed(self) -> int:
        return self.length - self.num_computed

    @property
    def ending(self) -> bool:
        """A step that is under way makes its last token."""
        return 0 < self.num_pending >= self.max_tokens - self.num_generated

    @property
    def num_reusable(self) -> int:
        """Tokens that need not be computed if their keys and values are there: all whose logits nobody asks for."""
        reusable = len(self.tokens) - 1
        sampling = self.request.sampling
        if sampling.prompt_logprobs is not None and len(self.prompt_scores) < self.num_prompt:
            reusable = max(len(self.prompt_scores) - 1, 0)
        if sampling.context_logits and self.num_context_logits < self.num_prompt:
            reusable = min(reusable, self.num_context_logits)
        return reusable

    def whole_stop(self, start: int, stop: int) -> int:
        """Where a chunk that was to reach from start to stop has to end, that it cuts no span of `uncut` in two: before
        the span, or behind it where the chunk begins inside or with it."""
        for first, last in self.uncut:
            if first < stop < last:
                return first if first > start else last
        return stop

    @property
    def num_context_logits(self) -> int:
        """Prompt positions whose logits are there."""
        return sum(map(len, self.context_logits))

    @property
    def penalised(self) -> bool:
        return self.request.sampling.penalised

    def fork(self, *, member: int, seed: int) -> "Sequence":
        """Another continuation of the same tokens, without blocks: those are for the scheduler to share."""
        twin = Sequence(self.request, self.arrival, seed, self.stop_ids, self.max_tokens, root=self.root, member=member)
        twin.adapter = self.adapter
        twin.images, twin.uncut = self.images, self.uncut
        twin.tokens = list(self.tokens)
        twin.keys = list(self.keys)
        twin.cached_tokens = self.cached_tokens
        twin.promoted = self.promoted
        twin.prompt_scores = self.prompt_scores
        twin.context_logits = self.context_logits
        twin.num_candidates = self.num_candidates
        twin.outputs = list(self.outputs)
        twin.logprob = self.logprob
        twin.masked = None if self.masked is None else self.masked.fork()
        twin.seen = set(self.seen)
        twin.answer_counts = dict(self.answer_counts)
        return twin

    def append(self, token_id: int) -> None:
        """Adds a generated token."""
        self.tokens.append(token_id)
        if self.penalised:
            self.seen.add(token_id)
            self.answer_counts[token_id] = self.answer_counts.get(token_id, 0) + 1
        if self.masked is not None:
            self.masked.accept(token_id)
