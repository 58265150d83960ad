"""Several answers to one prompt, of which the best are given: samples (best_of) and beams.

Owns which sequences go on, which fork and how answers are ranked. Knows logits only as candidates, blocks only through
the scheduler. Rules and scores of the beam search are those of transformers' `num_beams`.
"""

from bisect import insort
from dataclasses import dataclass

from local_engine.errors import GenerationFailed
from local_engine.generation import FinishReason, TokenOutput
from local_engine.philox import derived_seed
from local_engine.runner import StepResult
from local_engine.sampler import Candidate
from local_engine.scheduler import Scheduler
from local_engine.sequence import Sequence

__all__ = ["Answer", "BeamSearch", "BestOf", "Search"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. `score` ranks it, higher is better."""

    score: float
    tokens: tuple[TokenOutput, ...]
    finish: FinishReason
    stop_token_id: int | None = None


class BestOf:
    """Samples that run by themselves, each with a seed of its own; ranked by mean log-probability a token.

    The prompt is computed once: the others fork off when it is there.
    """

    def __init__(self, root: Sequence, scheduler: Scheduler) -> None:
        self.root = root
        self.live = [root]
        self.answers: list[Answer] = []
        self._scheduler = scheduler

    @property
    def over(self) -> bool:
        return not self.live

    def take(self, sequence: Sequence, result: StepResult) -> GenerationFailed | None:
        """One step of one of the sequences; its failure, which is the request's."""
        if result.failure is not None:
            return result.failure
        if len(self.live) == 1 and sequence is self.root and not sequence.outputs and not self.answers:
            self._fan_out()
        if result.complete:
            self._end(sequence, "stop")
        for token in result.tokens:
            sequence.outputs.append(token)
            sequence.logprob += token.logprob or 0.0
            if token.token_id in sequence.stop_ids:
                sequence.outputs.pop()
                self._end(sequence, "stop", stop_token_id=token.token_id)
                break
            sequence.append(token.token_id)
            if _ends(sequence):
                self._end(sequence, "stop")
                break
            if sequence.num_generated >= sequence.max_tokens:
                self._end(sequence, "length")
                break
        return None

    def _fan_out(self) -> None:
        """The other samples begin with the last token of the prompt: its logits are to be drawn from once for each."""
        root = self.root
        members = range(1, root.request.sampling.width)
        children = [root.fork(member=member, seed=derived_seed(root.seed, member)) for member in members]
        for child in children:  # a mask's fork may have raised before: nothing is taken in by halves
            self._scheduler.fork(root, child, num_computed=root.num_prompt - 1)
        self.live += children

    def _end(self, sequence: Sequence, finish: FinishReason, *, stop_token_id: int | None = None) -> None:
        self._scheduler.remove(sequence)
        self.live.remove(sequence)
        length = len(sequence.outputs) + (stop_token_id is not None)
        score = sequence.logprob / max(length, 1)
        insort(self.answers, Answer(score, tuple(sequence.outputs), finish, stop_token_id), key=_best_first)


@dataclass(frozen=True, slots=True)
class _Step:
    """A beam with one more token. logprob: of all its tokens."""

    beam: Sequence
    token: TokenOutput
    logprob: float


class BeamSearch:
    """Beams that advance together: a step is decided once the candidates of all of them are there.

    Until then a beam is parked, so that it may lose its blocks to the others.
    """

    def __init__(self, root: Sequence, scheduler: Scheduler) -> None:
        sampling = root.request.sampling
        self.root = root
        self.live = [root]
        self.answers: list[Answer] = []
        self.over = False
        self._scheduler = scheduler
        self._width = sampling.width
        self._length_penalty = sampling.length_penalty
        self._early_stopping = sampling.early_stopping
        self._candidates: dict[Sequence, list[Candidate]] = {}
        self._failure: GenerationFailed | None = None
        self._members = 0
        # Enough that `width` beams go on even if every end token is among the likeliest.
        root.num_candidates = 2 * self._width + len(root.stop_ids)

    def take(self, sequence: Sequence, result: StepResult) -> GenerationFailed | None:
        """One step of one beam; the request's failure once no beam can go on and none has ended."""
        if result.failure is not None:
            self._failure = result.failure
        if result.complete:
            self._add(sequence.outputs, sequence.logprob, "stop", None)
        self._candidates[sequence] = list(result.candidates)
        sequence.parked = True
        if len(self._candidates) == len(self.live):
            self._advance()
        return self._failure if self.over and not self.answers else None

    def _advance(self) -> None:
        steps = [
            _Step(beam, candidate.token, beam.logprob + candidate.logprob)
            for beam in self.live
            for candidate in self._candidates[beam]
        ]
        self._candidates = {}
        steps.sort(key=lambda step: -step.logprob)  # stable: equal ones by beam, then by token
        live: list[_Step] = []
        full = self._early_stopping and len(self.answers) == self._width
        for place, step in enumerate(steps):
            finish = self._finish(step)
            if finish is None:
                live.append(step)
            elif place < self._width and not full:
                self._finish_with(step, finish)
            if len(live) == self._width and place >= self._width - 1:
                break
        self.over = not live or self._cannot_improve(live[0])
        self._go_on([] if self.over else live[: self._width])

    def _finish(self, step: _Step) -> FinishReason | None:
        beam = step.beam
        if step.token.token_id in beam.stop_ids:
            return "stop"
        if beam.request.ends is not None and beam.num_generated + 1 > beam.request.sampling.min_tokens:
            answer = [*(token.token_id for token in beam.outputs), step.token.token_id]
            if beam.request.ends(answer):
                return "stop"
        return "length" if beam.num_generated + 1 >= beam.max_tokens else None

    def _finish_with(self, step: _Step, finish: FinishReason) -> None:
        ended = finish == "stop" and step.token.token_id in step.beam.stop_ids
        self._add(
            [*step.beam.outputs, step.token],
            step.logprob,
            finish,
            step.token.token_id if ended else None,
        )

    def _add(self, tokens: list[TokenOutput], logprob: float, finish: FinishReason, stop_token_id: int | None) -> None:
        """Keeps a finished beam if it is among the best. The end token counts in its length and is not reported."""
        score = logprob / max(len(tokens), 1) ** self._length_penalty
        shown = tokens if stop_token_id is None else tokens[:-1]
        insort(self.answers, Answer(score, tuple(shown), finish, stop_token_id), key=_best_first)
        del self.answers[self._width :]

    def _cannot_improve(self, best: _Step) -> bool:
        """Whether the search is over although beams could go on."""
        if len(self.answers) < self._width:
            return False
        if self._early_stopping:
            return True
        length = best.beam.num_generated + 1
        return best.logprob <= self.answers[-1].score * float(length**self._length_penalty)

    def _go_on(self, steps: list[_Step]) -> None:
        """Makes the beams those of `steps`: the first step of a beam is its own, the others are forks of it."""
        forks: list[tuple[Sequence, _Step]] = []
        own: dict[Sequence, _Step] = {}
        for step in steps:
            if own.setdefault(step.beam, step) is step:
                continue
            self._members += 1
            forks.append((step.beam.fork(member=self._members, seed=step.beam.seed), step))
        for child, step in forks:  # a mask's fork may have raised before: nothing is taken in by halves
            self._scheduler.fork(step.beam, child, num_computed=len(child.tokens))
        for beam in self.live:
            if beam not in own:
                self._scheduler.remove(beam)
        self.live = []
        for beam, step in (*own.items(), *forks):
            beam.append(step.token.token_id)
            beam.outputs.append(step.token)
            beam.logprob = step.logprob
            beam.parked = False
            self.live.append(beam)
        self.live.sort(key=lambda beam: -beam.logprob)


Search = BestOf | BeamSearch


def _ends(sequence: Sequence) -> bool:
    """Whether the caller says that the answer is over, once it may be."""
    request = sequence.request
    if request.ends is None or sequence.num_generated <= request.sampling.min_tokens:
        return False
    return request.ends(sequence.tokens[sequence.num_prompt :])


def _best_first(answer: Answer) -> float:
    return -answer.score
