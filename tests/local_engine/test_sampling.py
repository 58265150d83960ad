"""Every sampling parameter has a range, and the refusal names it."""

from typing import Any

import pytest

from local_engine.errors import InvalidInput
from local_engine.sampling import MAX_LOGPROBS, MAX_WIDTH, Dry, SamplingParams

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("param", "value"),
    [
        *(("max_tokens", value) for value in (-1, 2**31, 10**5000, 1.5, True, "8")),
        *(("min_tokens", value) for value in (-1, 2**31, 1.5, True, None)),
        *(("temperature", value) for value in (-0.1, 100.5, NAN, INF, 10**400, True, "1", None)),
        *(("top_p", value) for value in (0.0, -0.1, 1.1, NAN, INF, True)),
        *(("top_k", value) for value in (-1, 2**31, 1.0, True)),
        *(("min_p", value) for value in (-0.1, 1.1, NAN, True)),
        *(("repetition_penalty", value) for value in (0.0, -1.0, 101.0, NAN, INF)),
        *(("presence_penalty", value) for value in (-101.0, 101.0, NAN, INF)),
        *(("frequency_penalty", value) for value in (-101.0, 101.0, NAN, INF)),
        *(("logit_bias", value) for value in ({-1: 1.0}, {2**31: 1.0}, {1: 101.0}, {1: NAN}, {1: True})),
        *(("allowed_token_ids", value) for value in ((), (-1,), (1.0,), (True,))),
        *(
            ("bad_words", value)
            for value in (((-1,),), ((2**31,),), ((),), ((1, True),), tuple((i,) for i in range(5000)))
        ),
        *(("seed", value) for value in (2**63, 2**64, -(2**63) - 1, 1.5, True, 10**5000)),
        *(("stop_token_ids", value) for value in ((-1,), (2**64,), (1.5,), (True,))),
        *(("top_p_decay", value) for value in (0.0, 1.1, NAN, True)),
        *(("top_p_min", value) for value in (-0.1, 1.1, NAN, True)),
        *(("typical_p", value) for value in (0.0, 1.1, NAN, True)),
        *(("top_n_sigma", value) for value in (-0.1, 101.0, NAN, True)),
        *(("xtc_probability", value) for value in (-0.1, 1.1, NAN, True)),
        *(("xtc_threshold", value) for value in (-0.1, 1.1, NAN, True)),
        *(("dynatemp_range", value) for value in (-0.1, 101.0, NAN, True)),
        *(("dynatemp_exponent", value) for value in (-0.1, 101.0, NAN, True)),
        *(("repeat_last_n", value) for value in (-1, 2**31, 1.0, True)),
        *(("n", value) for value in (0, MAX_WIDTH + 1, 1.0, True)),
        *(("best_of", value) for value in (0, MAX_WIDTH + 1, 1.0, True)),
        *(("length_penalty", value) for value in (-11.0, 11.0, NAN, True)),
        *((name, 1) for name in ("beam_search", "early_stopping", "context_logits", "temperature_last")),
        *(("ignore_eos", value) for value in (1, None, "yes")),
        *(("logprobs", value) for value in (-1, MAX_LOGPROBS + 1, 1.0, True)),
        *(("prompt_logprobs", value) for value in (-1, MAX_LOGPROBS + 1, 1.0, True)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_out_of_range_is_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        SamplingParams(**{param: value})
    assert caught.value.param == param
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("param", "values"),
    [
        *(("dry_multiplier", {"multiplier": value}) for value in (0.0, -1.0, 101.0, NAN, True)),
        *(("dry_base", {"base": value}) for value in (0.9, 11.0, NAN)),
        *(("dry_allowed_length", {"allowed_length": value}) for value in (-1, 257, 1.0)),
        *(("dry_penalty_last_n", {"last_n": value}) for value in (-1, 2**31, 1.0)),
    ],
    ids=str,
)
def test_a_value_of_dry_out_of_range_is_refused_by_the_clients_name(param: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Dry(**{"multiplier": 1.0, **values})
    assert caught.value.param == param


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"max_tokens": 0, "prompt_logprobs": 0},
        {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0},
        {"temperature": 100.0, "top_p": 1e-9, "min_p": 1.0, "repetition_penalty": 0.01},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1, "logprobs": MAX_LOGPROBS},
        {"logit_bias": {0: -100.0, 5: 100}},
    ],
)
def test_the_ends_of_the_ranges_are_taken(values: dict[str, Any]) -> None:
    SamplingParams(**values)


def test_min_tokens_beyond_max_tokens_is_refused() -> None:
    with pytest.raises(InvalidInput, match="min_tokens: 5 is more than max_tokens, 4"):
        SamplingParams(max_tokens=4, min_tokens=5)


def test_masks_that_leave_no_token_are_refused() -> None:
    with pytest.raises(InvalidInput, match="allowed_token_ids"):
        SamplingParams(allowed_token_ids=(3, 4), bad_words=((4,), (3,), (2,)))


def test_all_named_token_ids_are_listed_with_their_parameter() -> None:
    sampling = SamplingParams(
        logit_bias={1: 2.0}, allowed_token_ids=(2,), bad_words=((3,),), stop_token_ids=(4,), max_tokens=1
    )
    assert sampling.token_ids() == (
        ("logit_bias", 1),
        ("allowed_token_ids", 2),
        ("bad_words", 3),
        ("stop_token_ids", 4),
    )
