"""The sampler on the device, step after step: histories that it keeps by itself, and steps that run ahead."""

from dataclasses import replace

import pytest
import torch

from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.kernels.gpu.step_sampler import KernelSampler, compile_sampler
from local_engine.sampler import SamplerRow, sample
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

VOCAB_SIZE = 40
PENALISED = SamplingParams(temperature=1.5, repetition_penalty=1.5, frequency_penalty=1.0)


def sequence(seed: int, sampling: SamplingParams = PENALISED) -> Sequence:
    return Sequence(GenerationRequest("r", (3, 4, seed % 30), replace(sampling, seed=seed)), 0, seed, frozenset(), 99)


def test_penalties_count_what_was_drawn_though_the_host_does_not_know_it_yet() -> None:
    sampler = KernelSampler(VOCAB_SIZE, slots=3, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(4)
    sequences = [sequence(1), sequence(2), sequence(3, SamplingParams()), sequence(4)]
    for step in range(6):
        # One comes late, and one is left out for a step, so that slots are given up and histories begun anew.
        present = [each for index, each in enumerate(sequences) if (index, step) not in ((3, 0), (3, 1), (0, 3))]
        logits = torch.randn(len(present), VOCAB_SIZE, generator=generator)
        known = step % 2 == 0  # in every other step, a token that was just drawn is not known to the host
        pending: dict[Sequence, int] = {}
        if not known:
            for each in present:
                if each.num_generated:
                    pending[each] = each.tokens.pop()
                    each.answer_counts[pending[each]] = each.answer_counts.get(pending[each], 1) - 1
        drawn = sampler.draw(logits.clone(), [SamplerRow(each, ahead=each in pending) for each in present])
        for each, token_id in pending.items():
            each.tokens.append(token_id)
            each.answer_counts[token_id] = each.answer_counts.get(token_id, 0) + 1
        expected = sample(logits, [SamplerRow(each) for each in present])
        assert drawn.fetch() == expected
        for each, outcome in zip(present, expected, strict=True):
            assert isinstance(outcome, TokenOutput)
            each.append(outcome.token_id)


def test_rows_of_rare_rules_are_drawn_by_the_reference() -> None:
    sampler = KernelSampler(VOCAB_SIZE, slots=3, device=torch.device("cpu"))
    logits = torch.randn(1, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    row = SamplerRow(sequence(5, SamplingParams(typical_p=0.5, logprobs=2)))
    assert sampler.draw(logits.clone(), [row]).fetch() == sample(logits, [row])


@pytest.mark.parametrize("vocab_size", [1, VOCAB_SIZE, 5000])
def test_kernels_are_compiled_by_rows_that_any_vocabulary_can_draw(vocab_size: int) -> None:
    compile_sampler(vocab_size, torch.device("cpu"), {torch.float32, torch.float16})
