"""Other servers' spellings become the fields that they stand for, once, and only where the surface has such a field."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import LoraAdapter, ReasoningOptions, Request, TemplateOptions, set_fields
from adapters.openai.aliases import ALIASES, resolved
from adapters.openai.chat.parse import parse_chat
from adapters.openai.completions.parse import parse_completions

ON = ReasoningOptions(budget_tokens=9)


def chat(**fields: Any) -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return resolved(parse_chat(json.dumps(body).encode(), max_depth=20))


def completion(**fields: Any) -> Request:
    return resolved(parse_completions(json.dumps({"model": "m", "prompt": "x", **fields}).encode(), max_depth=20))


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("repeat_penalty", 1.5, "sampling.repetition_penalty", 1.5),
        ("no_stop_trim", True, "sampling.include_stop", True),
        ("min_new_tokens", 3, "sampling.min_tokens", 3),
        ("typical", 0.5, "sampling.typical_p", 0.5),
        ("random_seed", 7, "sampling.seed", 7),
        ("dry_multiplier", 0.8, "sampling.dry_multiplier", 0.8),
        ("dry_sequence_breakers", ["\n", ":"], "sampling.dry_sequence_breakers", ("\n", ":")),
        ("dry_sequence_breakers", r'["\n", ":"]', "sampling.dry_sequence_breakers", ("\n", ":")),
        ("dry_sequence_breakers", r'"\n", "\""', "sampling.dry_sequence_breakers", ("\n", '"')),
        ("xtc_probability", 0.5, "sampling.xtc_probability", 0.5),
        ("top_n_sigma", -1, "sampling.top_n_sigma", -1.0),
        ("repeat_last_n", 64, "sampling.repeat_last_n", 64),
        ("temperature_last", True, "sampling.temperature_last", True),
        ("samplers", ["penalties", "dry", "top_k", "min_p", "temperature"], "sampling.temperature_last", True),
        ("samplers", ["temperature", "top_p"], "sampling.temperature_last", None),
        ("samplers", ["top_k", "top_p", "infill"], "sampling.temperature_last", None),
        ("samplers", "edskypmxt", "sampling.temperature_last", True),
        ("n_predict", 7, "max_tokens", 7),
        ("n_predict", -1, "max_tokens", None),
        ("n_predict", -1, "open_ended", True),
        ("max_new_tokens", 7, "max_tokens", 7),
        ("input_ids", [1, 2], "prompt_token_ids", (1, 2)),
        ("rid", "r", "request_id", "r"),
        ("lora_path", "a", "adapter", LoraAdapter(name="a")),
        ("lora_request", {"name": "a", "path": "/x"}, "adapter", LoraAdapter(name="a")),
        ("return_tokens", True, "return_token_ids", True),
        ("thinking", True, "reasoning", ReasoningOptions(mode="adaptive")),
        ("thinking", False, "reasoning", ReasoningOptions(effort="none")),
        ("thinking", {"type": "enabled", "budget_tokens": 9}, "reasoning", ON),
        ("thinking", {"type": "disabled"}, "reasoning", ReasoningOptions(effort="none")),
        ("thinking", {"type": "adaptive"}, "reasoning", ReasoningOptions(mode="adaptive")),
        ("enable_thinking", False, "reasoning", ReasoningOptions(effort="none")),
        ("reasoning", {"effort": "low", "exclude": True}, "reasoning", ReasoningOptions(effort="low", include=False)),
        ("reasoning", {"enabled": True, "max_tokens": 9}, "reasoning", ON),
        ("reasoning_format", "none", "reasoning", ReasoningOptions(separate=False)),
        ("reasoning_format", "deepseek", "reasoning", None),
    ],
)  # fmt: skip
def test_a_spelling_stands_for_its_field(name: str, value: object, field: str, expected: object) -> None:
    found: Any = chat(**{name: value})
    for step in field.split("."):
        found = getattr(found, step)
    assert found == expected
    assert chat(**{name: value}).extras == {}


def test_before_it_is_resolved_a_spelling_is_as_it_came() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "repeat_penalty": 1.50}'
    assert parse_chat(body, max_depth=20).extras == {"repeat_penalty": b"1.50"}


def test_a_surface_without_the_field_has_no_spelling_of_it() -> None:
    request = completion(thinking=True, input_ids=[1], reasoning_format="none", repeat_penalty=1.5, brand_new=1)
    assert request.extras.keys() == {"thinking", "input_ids", "reasoning_format", "brand_new"}
    assert set_fields(request) == ["prompts", "repetition_penalty"]


def test_null_says_nothing() -> None:
    assert all(chat(**{name: None}).extras == {} for name in (*ALIASES, "brand_new"))
    assert chat(brand_new=0).extras == {"brand_new": b"0"}


@pytest.mark.parametrize("zero", [0, 0.0])
def test_a_sampler_that_nobody_has_may_be_off(zero: float) -> None:
    assert chat(mirostat=zero, mirostat_tau=5.0, smoothing_factor=zero, tfs_z=1) == chat()
    for name, on in {"mirostat": 2, "tfs_z": 0.9, "smoothing_factor": 0.3, "top_a": "x"}.items():
        assert chat(**{name: on}).extras == {name: json.dumps(on).encode()}


@pytest.mark.parametrize(
    "fields",
    [
        {"repeat_penalty": 1.5, "repetition_penalty": 1.5},
        {"n_predict": 1, "max_tokens": 1},
        {"n_predict": -2},
        {"thinking_budget": 1, "reasoning_budget_tokens": 1},
        {"repeat_penalty": 0},
        {"repeat_penalty": "x"},
        {"thinking": {"type": "enabled", "depth": 1}},
        {"thinking": {"type": "on"}},
        {"stream_reasoning": False},
        {"timings_per_token": True},
        {"lora_request": {"path": "x"}},
        {"dry_sequence_breakers": '"open'},
        {"dry_sequence_breakers": ["x" * 41]},
        {"dry_sequence_breakers": ["x"] * 65},
        {"dry_base": 0.5},
        {"samplers": 3},
        {"samplers": ["top_k", "temperature"], "temperature_last": True},
    ],
)
def test_what_cannot_be_is_refused_by_the_clients_word(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**fields)
    assert caught.value.param in fields


@pytest.mark.parametrize("name", ["prefix", "partial"])
def test_a_last_message_says_itself_that_the_answer_goes_on_from_it(name: str) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", name: True}]
    found = chat(messages=said)
    assert found.template == TemplateOptions(continue_final_message=True, add_generation_prompt=False)
    assert (found.messages or ())[-1].extras is None
    assert chat(messages=[*said, said[0]]).template is None
