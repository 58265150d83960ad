from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.usage import Usage
from gateway.config.prices import PriceRow, read_prices
from gateway.limits.scope import NANO
from gateway.usage.prices import Price, PriceList, PublishedPrices, cost_of
from providers.models.facts import LongPrices, Prices
from tests.gateway.config.loading import BASE, fault, load

ROW = PriceRow(input=2, output=10, cached=0.5, cache_write=3)
LONG = Price.published(Prices(2, 10, 0.5, 3, 4, LongPrices(above=200_000, input=4, output=15, cache_read=1)))
TOKENS = st.integers(0, 10**7)
COUNTS = st.none() | TOKENS


def cost_usd(usage: Usage, row: PriceRow = ROW) -> float:
    nano = cost_of(usage, Price.of(row))
    assert nano is not None
    return nano / NANO


def test_cached_and_written_tokens_are_taken_out_of_the_prompts() -> None:
    usage = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, cache_write_tokens=100_000, completion_tokens=200_000)
    assert cost_usd(usage) == 0.5 * 2 + 0.4 * 0.5 + 0.1 * 3 + 0.2 * 10


def test_what_is_written_for_an_hour_costs_what_the_row_says_of_it() -> None:
    usage = Usage(prompt_tokens=1_000_000, cache_write_tokens=300_000, cache_write_1h_tokens=100_000)
    assert cost_usd(usage, PriceRow(input=2, output=0, cache_write=3, cache_write_1h=4)) == 0.7 * 2 + 0.2 * 3 + 0.1 * 4
    assert cost_usd(usage, PriceRow(input=2, output=0, cache_write=3)) == 0.7 * 2 + 0.3 * 3


def test_where_a_row_does_not_say_a_cache_costs_what_the_prompt_does() -> None:
    usage = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, cache_write_tokens=100_000)
    assert cost_usd(usage, PriceRow(input=2, output=10)) == 2


def test_reasoning_is_part_of_the_answer_and_costs_nothing_more() -> None:
    plain, thought = Usage(completion_tokens=500), Usage(completion_tokens=500, reasoning_tokens=400)
    assert cost_usd(plain) == cost_usd(thought)


def test_what_costs_anything_is_never_free() -> None:
    assert cost_of(Usage(prompt_tokens=1), Price.of(PriceRow(input=0.00001, output=0))) == 1


def test_an_answer_at_another_tier_costs_so_many_times_as_much() -> None:
    row = PriceRow(input=2, output=10, cached=0.5, tiers={"priority": 2, "Flex": 0.5})
    at = {
        tier: cost_usd(Usage(prompt_tokens=1_000_000, cached_tokens=500_000, tier=tier), row)
        for tier in (None, "priority", "flex", "scale")
    }
    assert at == {None: 1.25, "priority": 2.5, "flex": 0.625, "scale": 1.25}
    assert Price.of(row).at_tier("priority").at_most(1000, 1000) == 2 * Price.of(row).at_most(1000, 1000)


@given(prompt=COUNTS, cached=COUNTS, written=COUNTS, hour=COUNTS, completion=COUNTS)
def test_a_cost_lies_between_nothing_and_the_most_that_was_reserved(
    prompt: int | None, cached: int | None, written: int | None, hour: int | None, completion: int | None
) -> None:
    usage = Usage(
        prompt_tokens=prompt,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        completion_tokens=completion,
    )
    for price in (Price.of(ROW), LONG):
        cost = cost_of(usage, price)
        assert cost is not None
        assert 0 <= cost <= price.at_most(prompt or 0, completion or 0)


@pytest.mark.parametrize("tokens", [2**53, -(2**53)])
def test_a_cost_stays_one_that_can_be_reckoned_with_whatever_an_upstream_says(tokens: int) -> None:
    for usage in (Usage(prompt_tokens=tokens), Usage(prompt_tokens=5, cached_tokens=tokens, completion_tokens=tokens)):
        assert 0 <= cost_usd(usage) <= 1_000_000


def test_an_exact_name_goes_before_patterns_and_the_longest_pattern_first() -> None:
    rows = {"a/*": 1, "a/big-*": 2, "a/big-one": 3, "*": 4}
    prices = PriceList({name: PriceRow(input=usd, output=0) for name, usd in rows.items()})
    found = [prices.of(label) for label in ("a/small", "a/big-two", "a/big-one", "b/x")]
    assert [price.input // 1_000_000 for price in found if price is not None] == [1, 2, 3, 4]


def test_a_model_without_a_row_has_no_price() -> None:
    assert PriceList({"a/m": ROW}).of("b/m") is None


def test_a_long_prompt_has_its_own_price_for_every_token() -> None:
    short, long = Usage(prompt_tokens=200_000, completion_tokens=10), Usage(prompt_tokens=200_001, completion_tokens=10)
    assert cost_of(short, LONG) == 200_000 * 2_000 + 10 * 10_000
    assert cost_of(long, LONG) == 200_001 * 4_000 + 10 * 15_000


def test_makers_prices_hold_for_their_own_apis_alone() -> None:
    prices = PublishedPrices({"claude": "anthropic", "aws": "bedrock", "mine": "vllm"})
    assert prices.of("claude/claude-opus-5") == Price.published(Prices(5, 25, 0.5, 6.25, 10))
    assert prices.of("claude/claude-opus-5-20260101") == prices.of("claude/claude-opus-5")
    assert prices.of("aws/us.anthropic.claude-opus-5-v1:0") is None
    assert prices.of("mine/kimi-k2") is None
    assert prices.of("claude/claude-opus-9") is None
    assert prices.of("gone/claude-opus-5") is None


def test_sound_whose_price_is_not_known_makes_a_cost_unknown() -> None:
    heard = Usage(prompt_tokens=5, prompt_audio_tokens=3)
    assert cost_of(heard, LONG) is None
    assert cost_of(heard, Price.of(ROW)) == 10_000


def test_the_file_is_read_with_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a/m: {input: 0.25, output: 2}\n")
    config = load(BASE + "prices: {file: p.yaml}\n", path=tmp_path / "run.yaml")
    assert config.prices["a/m"].output == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a/m: {input: 1}\n", "p.yaml:1: a/m: expected both 'input' and 'output'"),
        ("a/m: {cached: 1}\n", "p.yaml:1: a/m: expected 'input' and 'output', or one of image"),
        ("a/m: {input: 1, output: 2}\nb/m: {input: -1, output: 2}\n", "p.yaml:2: b/m.input"),
        ("a/m: {input: 1, output: 2, colour: 3}\n", "p.yaml:1: a/m.colour"),
        ("a: [", "p.yaml:"),
        ("\na/b: {input: -1, output: 1}", "p.yaml:2: a/b.input: expected at least 0"),
        ("a/b: {input: 1, output: 1, cahced: 0}", "p.yaml:1: a/b.cahced: unknown key 'cahced', did you mean 'cached'?"),
    ],
)
def test_a_fault_in_the_file_is_told_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    line = fault(BASE + "prices: {file: p.yaml}\n", path=tmp_path / "run.yaml")
    assert "run.yaml:4: prices.file: " in line
    assert why in line


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    rows, faults = read_prices(tmp_path / "none.yaml", ("prices", "file"), 1)
    assert not rows
    assert "cannot be read" in faults[0].message


@pytest.mark.parametrize(
    "text",
    [
        "auth: {keys: [{id: a, secret: s, budget: {usd: 1}}]}",
        "auth: {keys: [{id: a, secret: s, per_model: {m: {budget: {usd: 1}}}}]}",
        "auth: {jwt: {issuer: 'https://a', audience: b, budget: {usd: 1}}}",
        "models: {m: {targets: [local/tiny], budget: {usd: 1}}}",
    ],
)
def test_a_budget_without_prices_is_a_fault(text: str) -> None:
    assert "a budget needs to know what tokens cost" in fault(BASE + text)


def test_a_budget_counts_by_the_prices_that_a_provider_publishes(tmp_path: Path) -> None:
    text = "version: 1\nproviders: {openai: {api_key: k}}\nmodels: {m: {targets: [openai/gpt-4o], budget: {usd: 1}}}\n"
    assert load(text, path=tmp_path / "run.yaml").models["m"].budget is not None
