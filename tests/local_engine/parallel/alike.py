"""A model in one process and in two, and what both answer."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel, load_model
from local_engine.parallel.group import RankGroup
from local_engine.parallel.load import load_parallel
from tests.local_engine.engine_driver import Outcome, generate, small_config

__all__ = ["TOLERANCE", "Models", "load_both"]

TOLERANCE = 2e-5
"""Of logits, beside those of one process: sums over inputs run in two parts."""


@dataclass(frozen=True)
class Models:
    one: LoadedModel
    two: LoadedModel

    def answers(self, requests: Sequence[GenerationRequest], **config: Any) -> tuple[list[Outcome], list[Outcome]]:
        """Of one process, each request alone; and of two, all added at once to an engine with this configuration."""
        alone = [generate(Engine(self.one, small_config()), [request])[0] for request in requests]
        with self.engine(**config) as engine:
            return alone, generate(engine, requests)

    @contextmanager
    def engine(self, **config: Any) -> Iterator[Engine]:
        """Over two processes."""
        with closing(Engine(self.two, small_config(**config))) as engine:
            yield engine


def load_both(path: Path, group: RankGroup, *, mmproj: Path | None = None, **options: Any) -> Models:
    config = replace(EngineConfig(dtype="float32"), **options)
    shared = replace(config, tensor_parallel=2)
    return Models(load_model(path, config, mmproj=mmproj), load_parallel(path, shared, group=group, mmproj=mmproj))
