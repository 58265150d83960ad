"""The engine behind async iterators: delivery, back-pressure, cancellation, bounds and the end of the thread."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig
from local_engine.errors import ContextOverflow, EngineClosed, GenerationFailed, InvalidInput, QueueFull, UnknownAdapter
from local_engine.executor import Executor
from local_engine.generation import GenerationRequest, Generator, StepOutput
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, request, small_config
from tests.local_engine.test_engine import POISON, RaisingExecutor, raising
from tests.local_engine.test_masks import Slow
from tests.local_engine.tiny_models import Oracle

PROMPT = [9, 8, 11, 12]
LONG = SamplingParams(temperature=0.0, ignore_eos=True)


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)


@asynccontextmanager
async def serving(loaded: LoadedModel, config: EngineConfig | None = None) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(loaded, config or small_config())
    try:
        yield engine
    finally:
        await engine.aclose()


async def collect(stream: AsyncGenerator[StepOutput, None]) -> list[StepOutput]:
    async with aclosing(stream):
        return [output async for output in stream]


def ids(outputs: list[StepOutput]) -> list[int]:
    return [token.token_id for output in outputs for token in output.tokens]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for the engine's thread, which announces nothing but outputs."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def until_idle(engine: AsyncEngine) -> None:
    """An abort is obeyed between two steps."""
    await until(lambda: not engine.stats().running and not engine.stats().waiting)


async def test_streams_deliver_the_whole_answer_and_one_finish(tiny_model: LoadedModel, oracle: Oracle) -> None:
    async with serving(tiny_model) as engine:
        generator: Generator = engine
        assert (generator.max_context, generator.vocab_size) == (64, 128)
        prompts = [PROMPT, PROMPT[:2], [*PROMPT, 30]]
        answers = await asyncio.gather(*(collect(generator.generate(request(p, greedy(20)))) for p in prompts))
        for prompt, outputs in zip(prompts, answers, strict=True):
            assert ids(outputs) == oracle.greedy(prompt, 20)
            assert [output.finish for output in outputs if output.finish] == ["length"]
            assert outputs[-1].finish == "length"
            assert {output.prompt_tokens for output in outputs} == {len(prompt)}


class UnpreparedExecutor(RaisingExecutor):
    """An executor that has something to do before the first step."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.pieces_left = 3
        self.prepare = self._do_a_piece

    def _do_a_piece(self) -> bool:
        self.pieces_left -= 1
        return self.pieces_left > 0


async def test_an_engine_without_work_prepares_for_steps_to_come(tiny_model: LoadedModel, oracle: Oracle) -> None:
    opened: list[UnpreparedExecutor] = []

    def open_executor(config: EngineConfig) -> Executor:
        opened.append(UnpreparedExecutor(tiny_model.open_executor(config)))
        return opened[-1]

    async with serving(replace(tiny_model, open_executor=open_executor)) as engine:
        await until(lambda: opened[0].pieces_left == 0)
        assert ids(await collect(engine.generate(request(PROMPT, greedy(5))))) == oracle.greedy(PROMPT, 5)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (request([], greedy(1)), InvalidInput),
        (request([500], greedy(1)), InvalidInput),
        (request([5] * 64, greedy(1)), ContextOverflow),
        (request([5] * 60, greedy(5)), ContextOverflow),
        (GenerationRequest("r", (5,), greedy(1), adapter="lora"), UnknownAdapter),
    ],
)
async def test_what_admission_refuses_never_reaches_the_queue(
    tiny_model: LoadedModel, bad: GenerationRequest, error: type[Exception]
) -> None:
    async with serving(tiny_model) as engine:
        with pytest.raises(error):
            await anext(engine.generate(bad))
        assert len(await collect(engine.generate(request(PROMPT, greedy(1))))) == 1


async def test_leaving_a_stream_early_frees_its_blocks(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model) as engine:
        stream = engine.generate(request(PROMPT, LONG))
        await anext(stream)
        assert engine.stats().blocks_used > 0
        await stream.aclose()
        await until_idle(engine)
        stats = engine.stats()
        assert (stats.blocks_used, stats.aborted) == (0, 1)


async def test_a_cancelled_task_aborts_its_request(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model, small_config(delivery_tokens=1)) as engine:
        started = asyncio.Event()

        async def read() -> None:
            async with aclosing(engine.generate(request(PROMPT, LONG))) as stream:
                async for _ in stream:
                    started.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(engine)
        assert engine.stats().blocks_used == 0
        assert engine.stats().aborted == 1


async def test_a_stream_that_is_never_started_holds_nothing(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model) as engine:
        stream = engine.generate(request(PROMPT, LONG))
        assert engine.stats().waiting == 0
        await stream.aclose()
        assert engine.stats().aborted == 0


async def test_a_slow_reader_pauses_its_own_sequence_and_no_other(tiny_model: LoadedModel, oracle: Oracle) -> None:
    async with serving(tiny_model, small_config(delivery_tokens=3)) as engine:
        slow = engine.generate(request(PROMPT, greedy(40)))
        first = await anext(slow)
        await until(lambda: engine.stats().paused == 1)
        for _ in range(3):
            quick = await collect(engine.generate(request(PROMPT, greedy(30))))
            assert ids(quick) == oracle.greedy(PROMPT, 30)
        assert engine.stats().paused == 1
        assert engine.stats().generated_tokens <= 90 + len(first.tokens) + 3
        rest = await collect(slow)
        assert ids([first, *rest]) == oracle.greedy(PROMPT, 40)


async def test_a_paused_sequence_whose_blocks_were_taken_ends_with_the_same_answer(
    tiny_model: LoadedModel, oracle: Oracle
) -> None:
    config = config_with_blocks(tiny_model, 12, delivery_tokens=3)
    async with serving(tiny_model, config) as engine:
        slow = engine.generate(request(PROMPT, greedy(30)))
        first = await anext(slow)
        await until(lambda: engine.stats().paused == 1)
        await collect(engine.generate(request(PROMPT, greedy(43))))
        assert engine.stats().preemptions == 1
        assert ids([first, *await collect(slow)]) == oracle.greedy(PROMPT, 30)


async def test_requests_past_the_bound_are_refused_at_once(tiny_model: LoadedModel) -> None:
    config = small_config(max_sequences=1, queue=1, delivery_tokens=1)
    async with serving(tiny_model, config) as engine:
        first, second = (engine.generate(request(PROMPT, greedy(3))) for _ in range(2))
        await anext(first)
        waiting = asyncio.create_task(anext(second))
        await until(lambda: engine.stats().waiting + engine.stats().running == 2)
        with pytest.raises(QueueFull) as caught:
            await anext(engine.generate(request(PROMPT, greedy(3))))
        assert caught.value.limit == 2
        await collect(first)
        await waiting
        await collect(second)
        await until_idle(engine)
        assert len(ids(await collect(engine.generate(request(PROMPT, greedy(3)))))) == 3


async def test_a_request_that_fails_raises_in_its_own_stream_alone(tiny_model: LoadedModel, oracle: Oracle) -> None:
    async with serving(raising(tiny_model)) as engine:
        healthy = asyncio.create_task(collect(engine.generate(request(PROMPT, greedy(20)))))
        with pytest.raises(GenerationFailed):
            await collect(engine.generate(request([3, POISON], greedy(20))))
        assert ids(await healthy) == oracle.greedy(PROMPT, 20)


async def test_closing_ends_running_streams_with_abort_and_takes_no_more(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model, small_config(delivery_tokens=2, max_sequences=1)) as engine:
        streams = [engine.generate(request(PROMPT, LONG)) for _ in range(2)]
        await anext(streams[0])
        queued = asyncio.create_task(collect(streams[1]))
        await asyncio.sleep(0)
        await engine.aclose()
        rest = await collect(streams[0])
        assert rest[-1].finish == "abort"
        assert (await queued)[-1].finish == "abort"
        assert engine.stats().blocks_used == 0
        with pytest.raises(EngineClosed):
            await anext(engine.generate(request(PROMPT, greedy(1))))


async def test_draining_lets_running_streams_end_by_themselves(tiny_model: LoadedModel, oracle: Oracle) -> None:
    async with serving(tiny_model) as engine:
        stream = engine.generate(request(PROMPT, greedy(30)))
        first = await anext(stream)
        closing = asyncio.create_task(engine.aclose(drain=True))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            await anext(engine.generate(request(PROMPT, greedy(1))))
        rest = await collect(stream)
        await closing
        assert ids([first, *rest]) == oracle.greedy(PROMPT, 30)
        assert rest[-1].finish == "length"


async def test_a_drain_that_a_reader_holds_up_can_be_cut_short(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model, small_config(delivery_tokens=2)) as engine:
        stream = engine.generate(request(PROMPT, LONG))
        await anext(stream)
        draining = asyncio.create_task(engine.aclose(drain=True))
        await asyncio.sleep(0)
        await engine.aclose()
        await draining
        assert (await collect(stream))[-1].finish == "abort"


async def test_a_defect_of_the_engine_itself_reaches_every_reader(tiny_model: LoadedModel) -> None:
    readings = iter([0.0])  # a clock that breaks when the first request ends
    engine = AsyncEngine(tiny_model, small_config(max_sequences=1), clock=lambda: next(readings))
    requests = [request(PROMPT, greedy(count)) for count in (2, 20)]
    results = await asyncio.gather(*(collect(engine.generate(item)) for item in requests), return_exceptions=True)
    assert [type(result) for result in results] == [GenerationFailed, GenerationFailed]
    with pytest.raises(EngineClosed):
        await anext(engine.generate(requests[0]))
    reasons: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    engine.when_failed(lambda why: loop.call_soon_threadsafe(reasons.put_nowait, why))
    assert (await reasons.get()).startswith("the engine stopped")
    await engine.aclose()


async def test_prompt_scores_arrive_once(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model, small_config(max_batch_tokens=2)) as engine:
        sampling = SamplingParams(temperature=0.0, max_tokens=5, prompt_logprobs=1, logprobs=1, ignore_eos=True)
        outputs = await collect(engine.generate(request(PROMPT, sampling)))
        (scores,) = [output.prompt_logprobs for output in outputs if output.prompt_logprobs is not None]
        assert [score.token_id for score in scores] == PROMPT
        assert all(len(token.top) == 1 for output in outputs for token in output.tokens)


def test_streams_of_two_event_loops_share_one_engine(tiny_model: LoadedModel, oracle: Oracle) -> None:
    engine = AsyncEngine(tiny_model, small_config())

    async def read() -> list[int]:
        return ids(await collect(engine.generate(request(PROMPT, greedy(10)))))

    async def both() -> list[list[int]]:
        return list(await asyncio.gather(read(), asyncio.to_thread(asyncio.run, read())))

    assert asyncio.run(both()) == [oracle.greedy(PROMPT, 10)] * 2
    asyncio.run(engine.aclose())


def test_a_loop_that_closed_under_its_reader_costs_the_engine_nothing(tiny_model: LoadedModel) -> None:
    engine = AsyncEngine(tiny_model, small_config(delivery_tokens=1))
    streams = []

    async def start() -> None:
        stream = engine.generate(request(PROMPT, greedy(50)))
        await anext(stream)
        streams.append(stream)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())
    loop.close()  # without shutting its generators down

    async def next_one() -> list[int]:
        async with asyncio.timeout(10):
            outputs = await collect(engine.generate(request(PROMPT, greedy(3))))
        await engine.aclose()
        return ids(outputs)

    assert len(asyncio.run(next_one())) == 3


async def test_several_answers_come_in_one_output(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model, small_config(delivery_tokens=2)) as engine:
        for beam_search in (False, True):
            sampling = SamplingParams(n=3, best_of=4, seed=1, beam_search=beam_search, max_tokens=9, ignore_eos=True)
            (output,) = await collect(engine.generate(request(PROMPT, sampling)))
            assert [len(answer.tokens) for answer in (output, *output.others)] == [9] * 3
            assert output.finish == "length"


async def test_leaving_a_search_early_frees_its_blocks(tiny_model: LoadedModel) -> None:
    async with serving(tiny_model) as engine:
        sampling = SamplingParams(n=4, beam_search=True, ignore_eos=True, max_tokens=60)
        waiting = asyncio.create_task(collect(engine.generate(request(PROMPT, sampling))))
        await until(lambda: engine.stats().running > 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_idle(engine)
        assert engine.stats().blocks_used == 0


async def test_a_mask_that_never_comes_holds_up_neither_others_nor_the_end(
    tiny_model: LoadedModel, oracle: Oracle
) -> None:
    slow = Slow()
    try:
        async with serving(tiny_model) as engine:
            masked = GenerationRequest("r", tuple(PROMPT), greedy(20), mask=slow)
            held = asyncio.create_task(collect(engine.generate(masked)))
            assert ids(await collect(engine.generate(request(PROMPT, greedy(20))))) == oracle.greedy(PROMPT, 20)
            await engine.aclose()
            assert (await held)[-1].finish == "abort"
            assert engine.stats().blocks_used == 0
    finally:
        slow.go_on.set()
