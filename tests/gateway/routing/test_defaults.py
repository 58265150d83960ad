import pytest

from adapters.canonical.messages import Message, Text
from gateway.routing.defaults import Defaults, DefaultsError, bounded
from tests.gateway.routing.test_router import request


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("dry_base", 0.5, "expected number >= 1.0"),
        ("dry_sequence_breakers", ["x" * 41], "expected string of length <= 40"),
        ("max_tokns", 5, "no such field of a request, did you mean 'max_tokens'?"),
        ("messages", [], "no such field of a request"),
        ("max_tokens", "5", "expected integer or null, got string"),
        ("max_tokens", -3, "expected integer >= 1"),
        ("logprobs", 21, "expected integer <= 20"),
        ("n", 0, "expected integer >= 1"),
        ("temperature", 9, "expected number <= 2.0"),
        ("top_p", 1.5, "expected number <= 1.0"),
        ("repetition_penalty", 0, "expected number > 0.0"),
        ("logit_bias", {"5": 101}, "expected number <= 100.0"),
        ("stop_token_ids", [-1], "expected integer >= 0"),
        ("reasoning.budget_tokens", -1, "expected integer >= 0"),
        ("system", "  ", "expected text that is not empty"),
        ("system", ["x"], "expected text that is not empty"),
    ],
)
def test_a_default_that_a_client_could_not_send_is_refused(name: str, value: object, why: str) -> None:
    with pytest.raises(DefaultsError) as refused:
        Defaults({name: value})
    assert str(refused.value) == f"defaults.{name}: {why}"


def test_a_default_at_the_end_of_its_range_is_taken() -> None:
    values = {"temperature": 2, "max_tokens": 1, "logprobs": 20, "logit_bias": {"5": -100}, "seed": -(2**63)}
    filled = Defaults(values).apply(request())
    assert (filled.sampling.temperature, filled.max_tokens, filled.logprobs) == (2.0, 1, 20)
    assert filled.sampling.logit_bias == {5: -100}


PROMPT = Message(role="system", parts=(Text(text="Be brief."),))
HI = Message(role="user", parts=(Text(text="hi"),))


def test_a_system_prompt_stands_before_messages_that_begin_with_none() -> None:
    defaults = Defaults({"system": "Be brief.", "temperature": 0.5})
    filled = defaults.apply(request(messages=(HI,)))
    assert (filled.messages, filled.message_paths) == ((PROMPT, HI), ("model", "messages[0]"))
    assert filled.sampling.temperature == 0.5
    placed = defaults.apply(request(messages=(HI,), message_paths=("input[0]",)))
    assert placed.message_paths == ("model", "input[0]")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": (Message(role="system", parts=(Text(text="Be long."),)), HI)},
        {"messages": (Message(role="developer", parts=(Text(text="Be long."),)), HI)},
        {"messages": (HI,), "prompt_token_ids": (1, 2)},
        {"messages": None, "prompts": ("hi",)},
    ],
)
def test_a_client_that_says_its_own_or_has_no_messages_gets_none(fields: dict[str, object]) -> None:
    asked = request(**fields)
    assert Defaults({"system": "Be brief."}).apply(asked) is asked


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": 32_000}, 4096),
        ({"max_tokens": 4096}, 4096),
        ({"max_tokens": 1}, 1),
        ({}, 4096),
        ({"messages": None, "prompts": ("hi",)}, None),
        ({"messages": None, "prompts": ("hi",), "open_ended": True}, 4096),
        ({"messages": None, "prompts": ("hi",), "max_tokens": 5000}, 4096),
    ],
)
def test_an_answer_is_bounded_whatever_is_asked_for(fields: dict[str, object], sent: int | None) -> None:
    assert bounded(request(**fields), 4096).max_tokens == sent
