"""Every number of the engine's configuration has a range, and the refusal names it."""

from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.errors import InvalidInput


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "int8"),
        ("threads", 0),
        ("block_size", 0),
        ("kv_bytes", 0),
        ("kv_bytes", 1.5),
        ("max_batch_tokens", 0),
        ("max_sequences", 0),
        ("max_sequences", True),
        ("queue", -1),
        ("max_context", 1),
        ("delivery_tokens", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        EngineConfig(**{field: value})
    assert caught.value.param == field


def test_the_ends_of_the_ranges_are_taken() -> None:
    EngineConfig(
        threads=1, block_size=1, max_batch_tokens=1, max_sequences=1, queue=0, max_context=2, delivery_tokens=1
    )
