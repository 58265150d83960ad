"""Entries of `providers:` as what providers are built with."""

from gateway.config import parse_config
from gateway.server.provider_building import build_providers
from providers.base import Limits
from providers.remote.openai_compatible import OpenAICompatible

RUN = """
version: 1
reliability: {timeouts: {first_token_s: 20, total_s: 300}}
providers:
  quick: {type: openai-compatible, base_url: "http://127.0.0.1:9/v1", timeouts: {connect_s: 1, first_token_s: 2}}
  slow: {type: openai-compatible, base_url: "http://127.0.0.1:9/v1", timeouts: {whole_s: 290, gap_s: 90}}
  plain: {type: openai-compatible, base_url: "http://127.0.0.1:9/v1"}
"""


def test_a_provider_has_the_limits_of_all_but_for_those_of_its_own() -> None:
    built = build_providers(parse_config(RUN, {}, provider_types=["openai-compatible"]))
    limits = {}
    for name, provider in built.items():
        assert isinstance(provider, OpenAICompatible)
        limits[name] = provider._client.limits
    shared = {"total_s": 300, "whole_s": 150.0, "first_token_s": 20}
    assert limits == {
        "quick": Limits(**{**shared, "connect_s": 1, "first_token_s": 2}),
        "slow": Limits(**{**shared, "whole_s": 290, "gap_s": 90}),
        "plain": Limits(**shared),
    }
