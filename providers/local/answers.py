"""From a prompt to the events of its answer: of one choice as it comes, or of the best of several at the end.

Knows no fan-out over prompts and no loading. Raises the engine's errors, which the provider translates.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace as with_fields

import orjson
from msgspec.structs import replace

from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.errors import InternalError, NotReady
from adapters.canonical.events import Event, PromptReported, ProviderReported, Started, TextDelta, UsageReported
from adapters.canonical.request import Request
from adapters.canonical.usage import TokenLogprob, Usage
from adapters.llamacpp.vocabulary import LLAMACPP
from adapters.ollama.answer import OWN_FIELDS
from adapters.ollama.durations import duration_fields
from adapters.ollama.vocabulary import CHAT as OLLAMA_CHAT
from adapters.ollama.vocabulary import GENERATE as OLLAMA_GENERATE
from local_engine.generation import GenerationRequest, StepOutput, TokenOutput
from local_engine.sampling import SamplingParams
from providers.base import Batch
from providers.local.constraint import constraint
from providers.local.engine_request import ends_at_stop, sampling_params
from providers.local.grammar_text import Grammar
from providers.local.image_input import ReadyImage
from providers.local.local_model import LocalModel
from providers.local.phases import EnginePhases
from providers.local.prompt import ModelPrompt, echoed_text, model_prompt, num_added
from providers.local.request_images import RequestImages
from providers.local.text_answer import TextAnswer, token_logprob
from providers.local.text_formats import text_pipeline
from providers.local.thinking import budget_mask

__all__ = ["answer_best", "answer_one", "asks_for_best"]

_TIMED = frozenset((OLLAMA_CHAT, OLLAMA_GENERATE, LLAMACPP))
"""Dialects whose clients are told how long an answer took."""


def asks_for_best(request: Request) -> bool:
    """Whether answers are to be ranked, so that none can be told before all have ended."""
    return bool(request.sampling.use_beam_search) or (request.best_of or 1) > (request.n or 1)


async def answer_one(
    model: LocalModel, request: Request, images: RequestImages, new_call_id: Callable[[], str], *, asked_ns: int
) -> AsyncGenerator[Batch, None]:
    """One choice, from prompt to events. `asked_ns` is when it was asked for, in the time of `monotonic_ns`; the model
    may have been loaded since. Raises the engine's errors and InvalidRequest."""
    clock = _Clock(asked_ns)
    prompt, asked = await _prepare(model, request, images)
    text = _text_answer(model, request, prompt, new_call_id)
    async with aclosing(_outputs(model, asked)) as outputs:
        first = True
        async for output in outputs:
            batch: Batch = []
            events = text.feed(output)
            if first:
                clock.saw(output)
                batch = await _head(model, request, prompt.ids, output)
                if request.dialect == MESSAGES:  # these clients are told of the prompt before the answer
                    batch.append(UsageReported(_usage(model, prompt, output, [text])))
                batch += _echo(model, request, prompt.ids, output)
            first = False
            if text.finished:
                events[-1:-1] = _reports(model, request, text, output, clock)
            batch += events
            if text.finished or request.continuous_usage:
                batch.append(UsageReported(_usage(model, prompt, output, [text])))
            if batch:
                yield batch
            if text.finished:
                return
    raise InternalError("the local engine ended without a finish", code="generation_failed")


async def answer_best(
    model: LocalModel, request: Request, images: RequestImages, new_call_id: Callable[[], str]
) -> AsyncGenerator[Batch, None]:
    """The n best of several answers to one prompt, as choices 0 to n - 1, all in one batch."""
    prompt, asked = await _prepare(model, request, images)
    async with aclosing(_outputs(model, asked)) as outputs:
        async for output in outputs:
            batch = await _head(model, request, prompt.ids, output)
            echo = _echo(model, request, prompt.ids, output)
            texts = []
            for choice, answer in enumerate((output, *output.others)):
                text = _text_answer(model, request, prompt, new_call_id)
                batch += [_as_choice(event, choice) for event in (*echo, *text.feed(answer))]
                texts.append(text)
            batch.append(UsageReported(_usage(model, prompt, output, texts)))
            yield batch
            return
    raise InternalError("the local engine ended without a finish", code="generation_failed")


async def _outputs(model: LocalModel, asked: GenerationRequest) -> AsyncGenerator[StepOutput, None]:
    """What the engine says, and traces are told what it does."""
    phases = EnginePhases()
    try:
        async with aclosing(model.engine.generate(asked)) as outputs:
            async for output in outputs:
                _check_whole(output)
                phases.saw(output)
                yield output
    finally:
        phases.close()


def _as_choice(event: Event, choice: int) -> Event:
    """An event of a lone choice as one of this choice."""
    match event:
        case Started() | PromptReported() | UsageReported():
            return event
        case _:
            return replace(event, choice=choice)


async def _prepare(model: LocalModel, request: Request, images: RequestImages) -> tuple[ModelPrompt, GenerationRequest]:
    """The prompt, and the request as the engine takes it; what may be long is done in a thread."""
    prompt, grammar, sampling = await asyncio.to_thread(_read, model, request, await images.ready(model.images))
    return prompt, GenerationRequest(
        request_id=request.request_id or "",
        prompt=prompt.ids,
        sampling=sampling,
        priority=request.priority or 0,
        adapter=None if request.adapter is None else request.adapter.name,
        cache_salt=request.cache_salt,
        mask=budget_mask(
            model.formats,
            model.tokenizer,
            request,
            opens_reasoning=prompt.opens_reasoning,
            inner=None if grammar is None else await model.grammars.mask(grammar),
        ),
        ends=ends_at_stop(model, request) if asks_for_best(request) else None,
        images=prompt.images,
    )


def _read(
    model: LocalModel, request: Request, images: Sequence[ReadyImage]
) -> tuple[ModelPrompt, Grammar | None, SamplingParams]:
    prompt = model_prompt(model, request, images)
    begins = prompt.begun_call is not None
    grammar = constraint(model.formats, request, opens_reasoning=prompt.opens_reasoning, begins_call=begins)
    return prompt, grammar, sampling_params(model, request, prompt_tokens=len(prompt.ids))


def _text_answer(
    model: LocalModel, request: Request, prompt: ModelPrompt, new_call_id: Callable[[], str]
) -> TextAnswer:
    pipeline = text_pipeline(
        model.formats,
        request,
        starts_inside=prompt.opens_reasoning,
        new_call_id=new_call_id,
        begun_call=prompt.begun_call,
    )
    if pipeline is not None and echoed_text(model, request, prompt.ids):
        pipeline.goes_on_with_text()
    return TextAnswer(model, request, pipeline)


def _check_whole(output: StepOutput) -> None:
    if output.finish == "abort":
        raise NotReady("the model was stopped before the answer was whole", retry_after_s=1)


async def _head(model: LocalModel, request: Request, prompt: tuple[int, ...], output: StepOutput) -> Batch:
    """How an answer begins: that it has, and what was asked about its prompt."""
    ids = prompt if request.return_token_ids else None
    logprobs = None
    if request.prompt_logprobs is not None and output.prompt_logprobs is not None:
        logprobs = _scores(model, request, output.prompt_logprobs, request.prompt_logprobs)
    logits = None if output.context_logits is None else await _logits_json(output)
    if ids is None and logprobs is None and logits is None:
        return [Started()]
    return [Started(), PromptReported(0, ids, logprobs, logits)]


def _scores(model: LocalModel, request: Request, scored: Sequence[TokenOutput], count: int) -> tuple[TokenLogprob, ...]:
    """Scores of prompt tokens with `count` alternatives each: echo and prompt_logprobs may want different numbers."""
    shows_ids = bool(request.return_tokens_as_token_ids)
    kept = [with_fields(token, top=token.top[:count]) for token in scored]
    return tuple([token_logprob(model.tokenizer, token, shows_ids=shows_ids) for token in kept])


async def _logits_json(output: StepOutput) -> bytes:
    """The prompt's logits, a list for each token. A row at a time, so that other requests go on in between."""
    rows = []
    for row in output.context_logits if output.context_logits is not None else ():
        rows.append(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY))
        await asyncio.sleep(0)
    return b"[" + b",".join(rows) + b"]"


def _echo(model: LocalModel, request: Request, prompt: tuple[int, ...], output: StepOutput) -> list[Event]:
    """What goes before the answer where an echo was asked for, with the logprobs of a plain prompt's tokens."""
    text = echoed_text(model, request, prompt)
    if text is None:
        return []
    scored = output.prompt_logprobs
    if request.prompts is None or scored is None or request.logprobs is None:
        return [TextDelta(0, 0, text)] if text else []
    added = num_added(model, request.prompts[0], prompt)
    entries = list(_scores(model, request, scored[added:], request.logprobs))
    if entries:
        entries[0] = replace(entries[0], logprob=None, top=())  # what is shown first has nothing before it
    return [TextDelta(0, 0, text, tuple(entries))]


class _Clock:
    """When an answer was asked for, had its model, began and gave its first output, in nanoseconds of the engine's
    clock."""

    def __init__(self, asked_ns: int) -> None:
        self._asked = asked_ns
        self._loaded = self._began = self._answered = time.monotonic_ns()

    def saw(self, output: StepOutput) -> None:
        """The first output is there."""
        self._answered = time.monotonic_ns()
        if output.began_s is not None:
            self._began = int(output.began_s * 1e9)

    def durations(self) -> Mapping[str, bytes]:
        now = time.monotonic_ns()
        return duration_fields(
            total_ns=now - self._asked,
            load_ns=self._loaded - self._asked,
            prompt_ns=self._answered - self._began,
            answer_ns=now - self._answered,
        )


def _reports(
    model: LocalModel, request: Request, text: TextAnswer, output: StepOutput, clock: _Clock
) -> Iterator[Event]:
    """How many tokens a step gave, where tokens were guessed (TensorRT-LLM's field), and what time it took, for clients
    that are told so."""
    if _guessed(model, output):
        steps = max(text.completion_tokens - output.accepted_draft_tokens, 1)
        told = {"avg_decoded_tokens_per_iter": orjson.dumps(round(text.completion_tokens / steps, 3))}
        yield ProviderReported(told, request.dialect, 0)
    if request.dialect in _TIMED:
        yield ProviderReported(clock.durations(), OWN_FIELDS)


def _guessed(model: LocalModel, output: StepOutput) -> bool:
    """Tokens were guessed, and whoever asked for that is to be told."""
    return model.tells_guesses and bool(output.accepted_draft_tokens or output.rejected_draft_tokens)


def _usage(model: LocalModel, prompt: ModelPrompt, output: StepOutput, texts: Sequence[TextAnswer]) -> Usage:
    """What one prompt and the answers shown cost. Guesses are counted where there were any."""
    reasoning = [text.reasoning_tokens for text in texts if text.reasoning_tokens is not None]
    guessed = _guessed(model, output)
    return Usage(
        prompt_tokens=output.prompt_tokens,
        completion_tokens=sum(text.completion_tokens for text in texts),
        reasoning_tokens=sum(reasoning) if reasoning else None,
        cached_tokens=output.cached_tokens,
        prompt_image_tokens=prompt.ids.count(model.images.token_id) if model.images and prompt.images else None,
        accepted_prediction_tokens=output.accepted_draft_tokens if guessed else None,
        rejected_prediction_tokens=output.rejected_draft_tokens if guessed else None,
    )
