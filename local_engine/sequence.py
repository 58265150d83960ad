"""One request on its way through the engine: its tokens, its KV blocks and what has been computed. Knows no tensors.

A token list is never cut: after a preemption the blocks are gone and `num_computed` is 0, so prompt and answer so far
are prefilled again, save for what the prefix cache still has, and decoding is merely the case where one token is left
to compute.
"""

from dataclasses import dataclass, field

from local_engine.generation import GenerationRequest, TokenOutput

__all__ = ["Sequence"]


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one request; the engine's thread owns it.

    arrival: counts up with each request. seed: 64 bits, the request's own or one drawn for it.
    stop_ids: all tokens that end it. max_tokens: the request's, or what the window leaves.
    root: what the keys of its blocks begin with; see `prefix_keys`.
    cached_tokens: prompt tokens that the prefix cache had when it first ran; None before.
    """

    request: GenerationRequest
    arrival: int
    seed: int
    stop_ids: frozenset[int]
    max_tokens: int
    root: bytes = b""
    tokens: list[int] = field(init=False)
    keys: list[bytes] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    cached_tokens: int | None = None
    paused: bool = False
    done: bool = False
    prompt_scores: list[TokenOutput] = field(default_factory=list)
    # Tokens seen anywhere and counted in the answer; kept only for requests with penalties.
    seen: set[int] = field(default_factory=set)
    answer_counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        if self.penalised:
            self.seen.update(self.tokens)

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the sequence to serve first to the front."""
        return (self.request.priority, self.arrival)

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def num_uncomputed(self) -> int:
        return len(self.tokens) - self.num_computed

    @property
    def num_reusable(self) -> int:
        """Tokens that need not be computed if their keys and values are there: all whose logits nobody asks for."""
        if self.request.sampling.prompt_logprobs is None or len(self.prompt_scores) == self.num_prompt:
            return len(self.tokens) - 1
        return max(len(self.prompt_scores) - 1, 0)

    @property
    def penalised(self) -> bool:
        sampling = self.request.sampling
        return (
            sampling.repetition_penalty != 1.0 or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
        )

    def append(self, token_id: int) -> None:
        """Adds a generated token."""
        self.tokens.append(token_id)
        if self.penalised:
            self.seen.add(token_id)
            self.answer_counts[token_id] = self.answer_counts.get(token_id, 0) + 1
