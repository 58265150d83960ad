"""The raw logits at every position of a prompt, whatever its chunks and what the prefix cache has of it."""

from dataclasses import replace

import pytest
import torch

from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.generation import StepOutput
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request, small_config
from tests.local_engine.test_engine import greedy
from tests.local_engine.tiny_models import VOCAB_SIZE, Oracle


@pytest.mark.parametrize("budget", [2, 64])
@pytest.mark.parametrize("scored", [None, 0])
def test_context_logits_are_those_of_every_position_of_the_prompt(
    tiny_model: LoadedModel, oracle: Oracle, budget: int, scored: int | None
) -> None:
    engine = Engine(tiny_model, small_config(max_batch_tokens=budget))
    prompt = list(range(10, 23))
    sampling = replace(greedy(3), context_logits=True, prompt_logprobs=scored)
    for _ in range(2):  # cold, then with the prompt in the prefix cache
        (outcome,) = generate(engine, [request(prompt, sampling)])
        (logits,) = [
            event.context_logits
            for event in outcome
            if isinstance(event, StepOutput) and event.context_logits is not None
        ]
        torch.testing.assert_close(torch.from_numpy(logits), oracle.logits(prompt), atol=5e-4, rtol=1e-4)


def test_context_logits_beyond_their_bound_are_refused_by_name(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local_engine.admission.MAX_CONTEXT_LOGITS", 5 * VOCAB_SIZE)
    engine = Engine(tiny_model, small_config())
    sampling = SamplingParams(context_logits=True, max_tokens=1)
    engine.add(request([1] * 5, sampling))
    with pytest.raises(InvalidInput, match="context_logits: can be had of 5 tokens at most, the prompt has 6"):
        engine.add(request([1] * 6, sampling))
