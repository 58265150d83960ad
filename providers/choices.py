"""Many choices from an upstream that gives fewer: it is asked for each choice or prompt, and the answers are merged.

Owns numbering, seeds and sums. Does not know what a choice says, and leaves `best_of` alone.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec.structs import replace

from adapters.canonical.events import Event, PromptReported, ProviderReported, Started, UsageReported
from adapters.canonical.request import Request
from adapters.canonical.usage import PROMPT_COUNTS, Usage, summed
from providers.base import Batch

__all__ = ["MAX_PARALLEL", "StreamCall", "fan_out", "fan_out_prompts"]

MAX_PARALLEL = 16
"""Calls of one request that run at once; the others wait their turn."""
_MAX_WAITING = 2 * MAX_PARALLEL
"""Batches that wait for a slow reader before the branches are held up."""

StreamCall = Callable[[Request], AsyncGenerator[Batch, None]]
"""Gives the answer to a request for one choice; closing it frees everything."""


def fan_out(stream: StreamCall, request: Request) -> AsyncGenerator[Batch, None]:
    """The answer to a request for several choices, from a `stream` that gives one.

    It is called once for each choice of each prompt, with a single prompt and without n; what comes is renumbered
    (choice = prompt index * n + choice) and passed on as it comes. There is one Started; prompt tokens count once for
    each prompt. The first error ends every branch and is raised; closing the iterator ends every branch at once.
    """
    if request.num_choices == 1:
        return stream(request)
    branches = _split(request)
    return _merged(stream, branches, _Merger(len(branches), choices_per_prompt=request.n or 1))


def fan_out_prompts(stream: StreamCall, request: Request) -> AsyncGenerator[Batch, None]:
    """As `fan_out`, from a `stream` that gives all choices of one prompt: it is called once for each prompt."""
    if request.prompts is None or len(request.prompts) == 1:
        return stream(request)
    branches = [replace(request, prompts=(prompt,)) for prompt in request.prompts]
    return _merged(stream, branches, _Merger(len(branches), choices_per_prompt=1, choices_per_branch=request.n or 1))


async def _merged(stream: StreamCall, branches: list[Request], merger: "_Merger") -> AsyncGenerator[Batch, None]:
    waiting = iter(enumerate(branches))
    queue: asyncio.Queue[tuple[int, Batch] | Exception | None] = asyncio.Queue(_MAX_WAITING)

    async def work() -> None:
        try:
            for number, branch in waiting:  # shared by the workers: each takes the next one
                async with aclosing(stream(branch)) as batches:
                    async for batch in batches:
                        await queue.put((number, batch))
        except Exception as error:  # handed over to the reader, which raises it
            await queue.put(error)
        else:
            await queue.put(None)

    workers = [asyncio.create_task(work()) for _ in range(min(MAX_PARALLEL, len(branches)))]
    running = len(workers)
    try:
        while running:
            match await queue.get():
                case (number, batch):
                    merged = merger.merge(number, batch)
                    if merged:
                        yield merged
                case Exception() as error:
                    raise error
                case None:
                    running -= 1
        last = merger.finish()
        if last is not None:
            yield [last]
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _split(request: Request) -> list[Request]:
    """One request for each choice of each prompt, in the order of their numbers."""
    prompts = [None] if request.prompts is None else [(prompt,) for prompt in request.prompts]
    branches: list[Request] = []
    for prompt in prompts:
        for choice in range(request.n or 1):
            sampling = request.sampling
            if choice and sampling.seed is not None:
                sampling = replace(sampling, seed=_derived_seed(sampling.seed, choice))
            branches.append(replace(request, prompts=prompt, n=None, sampling=sampling))
    return branches


def _derived_seed(seed: int, choice: int) -> int:
    """A seed for a choice after the first; 31 bits, which every upstream takes."""
    digest = hashlib.blake2b(f"{seed}:{choice}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


class _Merger:
    """Renumbers the events of the branches and adds up their usage."""

    def __init__(self, branches: int, *, choices_per_prompt: int, choices_per_branch: int = 1) -> None:
        self._usages: list[Usage | None] = [None] * branches
        self._per_prompt = choices_per_prompt
        self._per_branch = choices_per_branch
        self._started = False
        self._reported: Usage | None = None

    def merge(self, branch: int, batch: Batch) -> Batch:
        merged: Batch = []
        for event in batch:
            found = self._renumbered(branch, event)
            if found is not None:
                merged.append(found)
        return merged

    def finish(self) -> UsageReported | None:
        """The last totals, where they are not yet reported: a prompt's first choice may never have counted it."""
        usage = self._total(final=True)
        return None if usage is None or usage == self._reported else UsageReported(usage)

    def _renumbered(self, branch: int, event: Event) -> Event | None:
        """The event as the merged answer has it; None where it would say again what was said."""
        match event:
            case Started():
                if self._started:
                    return None
                self._started = True
                return event
            case UsageReported():
                self._usages[branch] = event.usage
                self._reported = self._total(final=False)
                return None if self._reported is None else UsageReported(self._reported)
            case PromptReported():
                prompt, choice = divmod(branch, self._per_prompt)
                return None if choice else replace(event, prompt=prompt)
            case ProviderReported() if event.choice is None:
                return None if branch else event
            case _:
                return replace(event, choice=branch * self._per_branch + (event.choice or 0))

    def _total(self, *, final: bool) -> Usage | None:
        """The sum so far. The first choice of a prompt speaks for the prompt; at the end, if it is silent, another."""
        known = [usage for usage in self._usages if usage is not None]
        if not known:
            return None
        speakers: list[Usage] = []
        for start in range(0, len(self._usages), self._per_prompt):
            choices = self._usages[start : start + self._per_prompt]
            speaker = next((usage for usage in choices if usage is not None), None) if final else choices[0]
            if speaker is not None:
                speakers.append(speaker)
        of_prompts = summed(speakers)
        return replace(summed(known), **{name: getattr(of_prompts, name) for name in PROMPT_COUNTS})
