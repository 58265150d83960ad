"""An engine's statistics as numbers by name, for whoever watches."""

from collections.abc import Iterator
from dataclasses import asdict

from local_engine.encoding import EncoderStats
from local_engine.generation import EngineStats
from providers.abilities import Measure

__all__ = ["OF_THE_MOMENT", "measures"]

OF_THE_MOMENT = frozenset(
    ("running", "waiting", "paused", "blocks_used", "blocks_total", "tokens_per_s", "requests", "inputs")
)
"""The others count from the start."""


def measures(model: str, stats: EngineStats | EncoderStats) -> Iterator[Measure]:
    for name, value in asdict(stats).items():
        yield Measure(model, name, value, grows=name not in OF_THE_MOMENT)
