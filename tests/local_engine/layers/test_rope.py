"""Rotary embedding: what it must preserve, and the llama3 stretching at its three ranges."""

import math

import pytest
import torch

from local_engine.attention_config import RopeConfig
from local_engine.layers.rope import apply_rope, inverse_frequencies, rope_tables


def test_scores_depend_on_the_distance_alone_and_lengths_stay() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 8).unbind(0)
    frequencies = inverse_frequencies(RopeConfig(), 8, max_context=2048)

    def turned(x: torch.Tensor, position: int) -> torch.Tensor:
        cos, sin = rope_tables(torch.tensor([position]), frequencies, torch.float32)
        return apply_rope(x[None], cos, sin)[0, 0]

    near = turned(q, 5) @ turned(k, 2)
    far = turned(q, 1005) @ turned(k, 1002)
    torch.testing.assert_close(near, far, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(turned(q, 77).norm(), q.norm())
    torch.testing.assert_close(turned(q, 0), q[0])


def test_linear_scaling_divides_every_frequency() -> None:
    plain = inverse_frequencies(RopeConfig(), 16, max_context=2048)
    scaled = inverse_frequencies(RopeConfig(scaling="linear", factor=4.0), 16, max_context=2048)
    torch.testing.assert_close(scaled, plain / 4)


def test_llama3_scaling_keeps_short_waves_and_divides_long_ones() -> None:
    rope = RopeConfig(theta=500000.0, scaling="llama3", factor=8.0, original_max_context=8192)
    plain = inverse_frequencies(RopeConfig(theta=500000.0), 128, max_context=2048)
    scaled = inverse_frequencies(rope, 128, max_context=2048)
    wavelengths = 2 * math.pi / plain
    short, long = wavelengths < 8192 / 4, wavelengths > 8192
    torch.testing.assert_close(scaled[short], plain[short])
    torch.testing.assert_close(scaled[long], plain[long] / 8)
    middle = ~short & ~long
    assert bool(((scaled[middle] < plain[middle]) & (scaled[middle] > plain[middle] / 8)).all())
    assert int(short.sum()) * int(long.sum()) * int(middle.sum()) > 0


def test_dimensions_beyond_the_rotary_ones_stay_as_they_are() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 8)
    frequencies = inverse_frequencies(RopeConfig(rotary_dim=6), 8, max_context=2048)
    cos, sin = rope_tables(torch.tensor([0, 4, 9]), frequencies, torch.float32)
    turned = apply_rope(x, cos, sin)
    torch.testing.assert_close(turned[..., :6], apply_rope(x[..., :6], cos, sin))
    assert torch.equal(turned[..., 6:], x[..., 6:])
    assert not torch.equal(turned[1:, :, :6], x[1:, :, :6])


@pytest.mark.parametrize(("max_context", "factor"), [(15, 2.0), (16, 2.0), (17, 5.0)])
def test_longrope_divides_by_the_factors_of_the_window_served(max_context: int, factor: float) -> None:
    rope = RopeConfig(scaling="longrope", original_max_context=16, short_factors=(2.0,) * 4, long_factors=(5.0,) * 4)
    plain = inverse_frequencies(RopeConfig(), 8, max_context=max_context)
    torch.testing.assert_close(inverse_frequencies(rope, 8, max_context=max_context), plain / factor)
