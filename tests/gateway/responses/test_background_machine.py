"""Any order of what may happen to background answers: each ends exactly once, and everything agrees on how."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from adapters.canonical.errors import QueueFull, UpstreamInternal
from adapters.canonical.events import ChoiceFinished, TextDelta
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from gateway.storage.records import KeptResponse
from providers.testing.scripted import ScriptedProvider, Step
from tests.adapters.openai.responses.event_order import check_events
from tests.gateway.responses.bench import Bench

T = TypeVar("T")
END = ("completed", "failed", "incomplete", "cancelled")
STOP: Step = [ChoiceFinished(0, StopReason.STOP)]
CUT: Step = [ChoiceFinished(0, StopReason.LENGTH)]


class BackgroundMachine(RuleBasedStateMachine):
    """Two may run and two may wait. Each answer waits at a gate before each of its steps."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gates: list[list[asyncio.Event]] = []
        self.known: dict[str, str] = {}
        """How each was seen to end."""
        self.bench = self.run(Bench.open(ScriptedProvider("fake", self.script), parallel=2, queue=2))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def script(self, request: Request) -> Iterator[Step]:
        gates = [asyncio.Event(), asyncio.Event()]
        self.gates.append(gates)
        yield gates[0]
        yield [TextDelta(0, 0, "a")]
        yield gates[1]
        yield [STOP, CUT, UpstreamInternal("broken")][len(self.gates) % 3]

    @rule(target=jobs)
    def submit(self) -> str:
        try:
            return self.run(self.bench.submit())
        except QueueFull:
            assert self.bench.background.count == 4
            return self.bench.ids[0]

    @rule(gate=st.integers(0, 1), which=st.integers(0, 5))
    def open_a_gate(self, gate: int, which: int) -> None:
        if self.gates:
            self.gates[which % len(self.gates)][gate].set()

    @rule(turns=st.integers(0, 30))
    def let_the_loop_run(self, turns: int) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(turn())

    @rule(job=jobs, turns=st.integers(0, 8))
    def cancel_twice_at_once(self, job: str, turns: int) -> None:
        async def cancel() -> None:
            first = asyncio.ensure_future(self.bench.background.cancel(job))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(first, self.bench.background.cancel(job))

        self.run(cancel())

    @rule(job=jobs)
    def cancel_as_another_process_would(self, job: str) -> None:
        self.run(self.bench.background.end_elsewhere("", job))

    @rule(job=consumes(jobs))
    def delete(self, job: str) -> None:
        self.run(self.bench.delete(job))
        self.known.pop(job, None)

    @rule(job=jobs)
    def read_what_is_there(self, job: str) -> None:
        self.check(job)

    @invariant()
    def no_more_run_than_may(self) -> None:
        assert self.bench.provider.open_streams <= 2
        assert self.bench.background.count <= 4

    def check(self, job: str) -> str | None:
        """How it stands. A state that was final stays; the log, the object and the row agree."""
        found, events = self.run(self.moment(job))
        if found is None:
            return None
        response = orjson.loads(found.body)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert self.known.get(job, found.status) == found.status
        if found.status in END:
            assert found.worker is None
            assert check_events(events) == response
            assert response["status"] == found.status
            self.known[job] = found.status
        else:
            assert not any(event["type"].endswith((".completed", ".failed", ".incomplete")) for event in events)
        return found.status

    async def moment(self, job: str) -> tuple[KeptResponse | None, list[dict[str, Any]]]:
        """The row and the log of one moment: both are read again where the response went on in between."""
        while True:
            found, events = await self.bench.find(job), await self.bench.events(job)
            if await self.bench.find(job) == found:
                return found, events

    def teardown(self) -> None:
        self.run(self.bench.background.drain(0))
        assert self.bench.background.count == 0
        assert self.bench.provider.open_streams == 0
        for job in self.bench.ids:
            assert self.check(job) in (*END, None)
        self.run(self.bench.aclose())
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


TestBackgroundMachine = BackgroundMachine.TestCase
TestBackgroundMachine.settings = settings(max_examples=25, stateful_step_count=25)


def test_an_error_of_a_provider_is_not_raised_at_the_one_who_submits() -> None:
    async def run() -> str:
        bench = await Bench.open(ScriptedProvider("fake", [UpstreamInternal("x")]), parallel=1, queue=1)
        try:
            job = await bench.submit()
            await bench.background.drain(5)
            found = await bench.find(job)
            assert found is not None
            return found.status
        finally:
            await bench.aclose()

    assert asyncio.run(run()) == "failed"
