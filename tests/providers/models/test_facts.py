import pytest

from adapters.canonical.messages import Audio, Image, Text, Video
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from providers.base import Capabilities
from providers.models.facts import ModelFacts, facts_of, families
from providers.models.narrowing import per_model
from providers.registry import provider_types

EVERYTHING = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Image, Audio, Video)))


def found(model: str) -> ModelFacts:
    facts = facts_of(model)
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5[-.]5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4(?:-0)?"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4[-.]5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4[-.]5"),
        ("anthropic/claude-3.5-sonnet", "claude-3[-.]5-sonnet"),
        ("claude-3-5-sonnet@20240620", "claude-3[-.]5-sonnet"),
        ("openai/gpt-4o-mini", "gpt-4o-mini"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("models/gemini-2.5-flash-lite-preview-06-17", r"gemini-2\.5-flash-lite"),
        ("Gemini-3-Pro-Preview", "gemini-3-pro"),
        ("kimi-k2-thinking", "kimi-k2-thinking"),
        ("kimi-k2-turbo-preview", "kimi-k2-turbo"),
        ("kimi-k2-0905-preview", "kimi-k2"),
        ("gpt-5.6", r"gpt-5\.6(?:-sol)?"),
        ("gpt-5.6-terra", r"gpt-5\.6-terra"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4-0613", "gpt-4"),
        ("mistral-small-2603", "mistral-small-2603"),
        ("mistral-small-latest", "mistral-small"),
        ("amazon.titan-embed-text-v2:0", "titan-embed-text-v2(?::0)?"),
    ],
)
def test_names_are_found_as_hosts_write_them(model: str, name: str) -> None:
    assert found(model).name == name


@pytest.mark.parametrize("model", ["", "claude-opus-9", "gpt-5.9", "gpt-4o-audio", "my-gpt-5", "gpt-5-tuned", "llama"])
def test_a_name_that_only_looks_like_a_known_one_passes_through(model: str) -> None:
    assert facts_of(model) is None
    assert per_model(EVERYTHING)(model) is EVERYTHING


@pytest.mark.parametrize("row", families(), ids=lambda row: row.name)
def test_a_row_is_whole(row: ModelFacts) -> None:
    assert row.family
    assert row.owner
    assert set(row.sampling or ()) <= EXPRESSIBLE_FIELDS
    assert set(row.inputs or ()) <= {"image", "audio", "video", "pdf"}
    assert row.structured_output in (None, "json_schema", "json_object", "forced_tool")
    assert row.max_output is None or row.context is None or row.max_output <= row.context
    assert set(row.sold_by) <= provider_types()
    prices = row.prices
    if prices is not None:
        assert prices.output == 0 or prices.input <= prices.output  # 0: it answers with vectors
        assert (prices.cache_read or 0) <= prices.input <= (prices.cache_write or prices.input)
    if prices is not None and prices.long is not None:
        assert prices.long.input > prices.input
        assert row.context is None or prices.long.above < row.context or row.family == "claude"


def test_a_model_takes_what_its_host_takes_less_what_it_is_known_not_to_take() -> None:
    of = per_model(EVERYTHING)
    thinker = of("o3-mini")
    assert EVERYTHING.fields - thinker.fields >= {"temperature", "top_p", "presence_penalty", "logit_bias", "logprobs"}
    assert {"seed", "stop", "tools", "reasoning.effort"} <= thinker.fields
    assert thinker.parts == {Text}
    assert "top_k" in of("claude-sonnet-4-5").fields
    assert "presence_penalty" not in of("claude-sonnet-4-5").fields
    assert of("gpt-4o").parts == {Text, Image}
    assert of("sonar-pro").fields.isdisjoint({"tools", "tool_choice"})
    formats = of("deepseek-chat").output_formats
    assert formats is not None
    assert "json_object" in formats
    assert "json_schema" not in formats
    assert of("o3-mini") is thinker
    assert of("gpt-4o").max_output == 16_384
    always = {model: of(model).always_thinks for model in ("o3-mini", "gpt-5.1", "claude-opus-5-5", "claude-opus-5")}
    assert always == {"o3-mini": True, "gpt-5.1": False, "claude-opus-5-5": True, "claude-opus-5": False}
