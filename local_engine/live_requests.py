"""The requests that have not ended: what the results of steps make of them. Knows neither devices nor steps to come."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from local_engine.chunk import Chunk
from local_engine.errors import EngineError, GenerationFailed, TooFewAnswers
from local_engine.generation import FinishReason, StepOutput, TokenOutput
from local_engine.runner import StepResult
from local_engine.scheduler import Scheduler
from local_engine.search import BeamSearch, BestOf, Search
from local_engine.sequence import Sequence
from local_engine.step_outputs import answers_output, read_prompt, step_output
from local_engine.totals import Totals

__all__ = ["LiveRequests", "SequenceEvent"]

# What happened to a request in a step. The sequence is the one that `Engine.add` gave for it.
SequenceEvent = tuple[Sequence, StepOutput | EngineError]


class LiveRequests:
    """Those of one engine, which its scheduler runs. Not thread-safe.

    forget: called with each sequence that ends, for whoever else keeps something of it.
    """

    def __init__(self, scheduler: Scheduler, totals: Totals, *, forget: Callable[[Sequence], None]) -> None:
        self._scheduler = scheduler
        self._totals = totals
        self._forget = forget
        self._searches: dict[int, Search] = {}
        """Of the requests that generate several answers, by arrival."""

    def begin(self, sequence: Sequence) -> None:
        """Of a request that the scheduler has taken."""
        sampling = sequence.request.sampling
        if sampling.beam_search and sequence.max_tokens:
            self._searches[sequence.arrival] = BeamSearch(sequence, self._scheduler)
        elif sampling.width > 1 and sequence.max_tokens:
            self._searches[sequence.arrival] = BestOf(sequence, self._scheduler)

    def is_searched(self, sequence: Sequence) -> bool:
        """Its request generates several answers."""
        return sequence.arrival in self._searches

    def abort(self, sequence: Sequence) -> None:
        """Forgets a request; nothing happens if it has ended already."""
        if not sequence.done:
            self._remove(sequence)
            self._totals.aborted += 1

    def take_all(self, results: Mapping[Chunk, StepResult]) -> list[SequenceEvent]:
        """What a step has yielded of each of its chunks; an event a request at most."""
        events: list[SequenceEvent] = []
        for chunk, result in results.items():
            if not chunk.sequence.done:  # another sequence of its request may have failed
                events += self._take(chunk, result)
        return events

    def _take(self, chunk: Chunk, result: StepResult) -> list[SequenceEvent]:
        """Takes a chunk's result into its sequence; what its reader should hear of it."""
        sequence = chunk.sequence
        self._scheduler.advance(sequence, chunk.stop - len(chunk.draft))
        if not read_prompt(sequence, result):
            return self.fail(sequence, GenerationFailed("the model's logits are not finite numbers"))
        if not chunk.reaches_end:
            return []
        self.count_prompt(sequence)
        if result.late:
            sequence.parked = True
            return []
        return self.go_on(sequence, result, chunk)

    def go_on(self, sequence: Sequence, result: StepResult, chunk: Chunk | None) -> list[SequenceEvent]:
        """Takes in what was chosen after all of a sequence's tokens. chunk: where they were computed with a draft."""
        search = self._searches.get(sequence.arrival)
        if search is not None:
            return self._go_on_searching(search, sequence, result)
        if result.failure is not None:
            return self.fail(sequence, result.failure)
        if result.complete:
            return [self._finish(sequence, [], "stop")]
        computed = sequence.num_computed
        tokens: list[TokenOutput] = []
        finish: FinishReason | None = None if sequence.max_tokens else "length"
        stop_token_id = None
        for token in result.tokens:
            if token.token_id in sequence.stop_ids:
                finish, stop_token_id = "stop", token.token_id
                break
            sequence.append(token.token_id)
            tokens.append(token)
            if sequence.num_generated >= sequence.max_tokens:
                finish = "length"
                break
        self._totals.generated_tokens += len(tokens)
        if chunk is not None and chunk.draft:
            self._count_draft(sequence, accepted=len(result.tokens) - 1, drafted=len(chunk.draft))
            self._scheduler.advance(sequence, min(computed + len(result.tokens) - 1, len(sequence.tokens)))
        if finish is not None:
            return [self._finish(sequence, tokens, finish, stop_token_id=stop_token_id)]
        return [(sequence, step_output(sequence, tokens))]

    def count_prompt(self, sequence: Sequence) -> None:
        """Called whenever all of a sequence's tokens are computed: the first time, these are its prompt's."""
        if sequence.num_generated == 0 and sequence.member == 0:
            self._totals.prompt_tokens += sequence.num_prompt
            self._totals.prefix_hits += sequence.cached_tokens or 0

    def _count_draft(self, sequence: Sequence, *, accepted: int, drafted: int) -> None:
        sequence.accepted_drafts += accepted
        sequence.rejected_drafts += drafted - accepted
        self._totals.accepted_drafts += accepted
        self._totals.rejected_drafts += drafted - accepted

    def _go_on_searching(self, search: Search, sequence: Sequence, result: StepResult) -> list[SequenceEvent]:
        try:
            failure = search.take(sequence, result)
        except Exception as error:  # a mask's fork or the caller's `ends`: their request's failure and no other's
            failure = GenerationFailed(f"the search failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
        if failure is not None:
            return self.fail(sequence, failure)
        self._totals.generated_tokens += len(result.tokens) or bool(result.candidates)
        if not search.over:
            return []
        wanted = sequence.request.sampling.n
        if len(search.answers) < wanted:
            return self.fail(sequence, TooFewAnswers(found=len(search.answers), wanted=wanted))
        root = search.root
        self._remove(root)
        self._totals.finished += 1
        return [(root, answers_output(root, search.answers[:wanted]))]

    def fail(self, sequence: Sequence, failure: GenerationFailed) -> list[SequenceEvent]:
        """Ends the request of a sequence. Nothing if it has failed already."""
        search = self._searches.get(sequence.arrival)
        root = sequence if search is None else search.root
        if sequence.done and search is None:
            return []
        self._remove(root, sound=False)
        self._totals.failed += 1
        return [(root, failure)]

    def _finish(
        self,
        sequence: Sequence,
        tokens: list[TokenOutput],
        finish: FinishReason,
        *,
        stop_token_id: int | None = None,
    ) -> SequenceEvent:
        self._remove(sequence)
        self._totals.finished += 1
        output = step_output(sequence, tokens, finish=finish, stop_token_id=stop_token_id)
        wanted = sequence.request.sampling.n
        if wanted > 1:  # no search was begun: nothing is to be generated
            output = replace(output, others=(step_output(sequence, tokens, finish=finish),) * (wanted - 1))
        return sequence, output

    def _remove(self, root: Sequence, *, sound: bool = True) -> None:
        """Ends a request: all its sequences that the scheduler still has."""
        search = self._searches.pop(root.arrival, None)
        for sequence in [root] if search is None else search.live:
            self._scheduler.remove(sequence, sound=sound)
            self._forget(sequence)
            sequence.done = True
        root.done = True
