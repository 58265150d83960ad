"""Every row of the registry in two processes answers as in one, however the engine comes to its answer."""

from pathlib import Path

import pytest
import torch

from local_engine.parallel.group import RankGroup
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_image_oracles import IMAGE, TINY_IMAGE_ORACLES, ImagePrompt, image_oracle, pixels_of
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES, oracle_of
from tests.local_engine.parallel.alike import TOLERANCE, Models, load_both
from tests.local_engine.tiny_models import write_gguf, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
REQUESTS = [request(prompt, GREEDY) for prompt in PROMPTS]
# OLMo and MiniMax norm all heads of a row as one vector, DeepSeek and its like have one kv head, Gemma 4 has unlike
# layers, and recurrent layers have one process.
ALONE = (
    "Olmo",
    "MiniMax",
    "Glm4MoeLite",
    "Deepseek",
    "Lfm2",
    "Gemma4",
    "Qwen3Next",
    "Qwen3_5",
    "NemotronH",
    "FalconH1",
)
NAMES = [name for name in TEXT_ARCHITECTURES if not name.startswith(ALONE)]
# One format each: `test_shares` reads the shares of both.
KINDS = [(name, ("safetensors", "gguf")[index % 2]) for index, name in enumerate(NAMES)]


class Subject:
    def __init__(self, models: Models) -> None:
        self.models = models
        alone, two = models.answers(REQUESTS)
        self.expected = [tokens_of(outcome) for outcome in alone]
        self.batched = [tokens_of(outcome) for outcome in two]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def subject(request: pytest.FixtureRequest, pair: RankGroup, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    name, kind = request.param
    folder: Path = tmp_path_factory.mktemp(name)
    oracle = oracle_of(name)
    path = write_safetensors(oracle, folder) if kind == "safetensors" else write_gguf(oracle, folder / "model.gguf")
    return Subject(load_both(path, pair))


def test_its_logits_are_those_of_one_process(subject: Subject) -> None:
    asked = request(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=1, context_logits=True, prompt_logprobs=2))
    ((one,), (two,)) = subject.models.answers([asked])
    expected, found = last(one), last(two)
    assert found.context_logits is not None
    assert expected.context_logits is not None
    two_logits, one_logits = map(torch.from_numpy, (found.context_logits, expected.context_logits))
    torch.testing.assert_close(two_logits, one_logits, atol=TOLERANCE, rtol=TOLERANCE)
    two_scores, one_scores = (
        torch.tensor([score.logprob for score in output.prompt_logprobs or () if score.logprob is not None])
        for output in (found, expected)
    )
    assert len(two_scores) == len(PROMPTS[0]) - 1
    torch.testing.assert_close(two_scores, one_scores, atol=TOLERANCE, rtol=TOLERANCE)


def test_alone_and_behind_a_cached_prefix_it_answers_the_same(subject: Subject) -> None:
    with subject.models.engine(max_batch_tokens=5) as engine:
        for cached in (0, 16):
            (outcome,) = generate(engine, REQUESTS[:1])
            assert tokens_of(outcome) == subject.expected[0]
            assert last(outcome).cached_tokens == cached


def test_batched_and_chunked_it_answers_the_same(subject: Subject) -> None:
    assert subject.batched == subject.expected
    with subject.models.engine(max_batch_tokens=7) as engine:
        assert [tokens_of(outcome) for outcome in generate(engine, REQUESTS)] == subject.expected


def test_preempted_it_answers_the_same(subject: Subject) -> None:
    blocks = config_with_blocks(subject.models.one, 11).kv_bytes // 2  # half the heads of one process
    with subject.models.engine(kv_bytes=blocks, max_batch_tokens=16) as engine:
        assert [tokens_of(outcome) for outcome in generate(engine, REQUESTS)] == subject.expected
        assert engine.stats().preemptions > 0


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
@pytest.mark.parametrize("name", [name for name in TINY_IMAGE_ORACLES if not name.startswith(ALONE)])
def test_with_images_it_answers_the_same(name: str, kind: str, pair: RankGroup, tmp_path: Path) -> None:
    oracle = image_oracle(name)
    path, mmproj = (oracle.write(tmp_path), None) if kind == "safetensors" else oracle.write_pair(tmp_path)
    models = load_both(path, pair, mmproj=mmproj)
    sampling = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logit_bias={IMAGE: -100.0})
    one, other = pixels_of(1), pixels_of(2)
    prompts = [
        ImagePrompt([3, 17, 99, 101, one, 102, 64, 23, 8, 101, other, 102, 31, 90]),
        ImagePrompt([101, other]),
        ImagePrompt([44, 9, 81]),
    ]
    alone, two = models.answers([prompt.request(sampling) for prompt in prompts], max_batch_tokens=8)
    assert [tokens_of(outcome) for outcome in two] == [tokens_of(outcome) for outcome in alone]
