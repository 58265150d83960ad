"""What run.yaml says about the engine reaches it."""

from contextlib import aclosing
from pathlib import Path

import pytest

from local_engine.errors import InvalidInput
from local_engine.generation import GenerationRequest
from local_engine.sampling import SamplingParams
from providers.base import ProviderSettings
from providers.local.local_model import load_local_model
from providers.local.settings import read_settings
from tests.cases.tiny_model import write_model


@pytest.mark.parametrize(("kv_cache", "expected"), [({}, [0, 16]), ({"prefix_cache": False}, [0, 0])])
async def test_the_prefix_cache_is_on_unless_it_is_switched_off(
    tmp_path: Path, kv_cache: dict[str, bool], expected: list[int]
) -> None:
    source = str(write_model(tmp_path / "model"))
    options = {"models": {"m": {"source": source}}, "kv_cache": {"memory": 2**20, **kv_cache}, "device": "cpu"}
    settings = read_settings(ProviderSettings(name="local", type="local", options=options))
    model = load_local_model("m", settings.models["m"], settings, lambda what, done, total: None)
    try:
        request = GenerationRequest("r", tuple(range(5, 25)), SamplingParams(max_tokens=1))
        cached = []
        for _ in range(2):
            async with aclosing(model.engine.generate(request)) as outputs:
                cached.append([output.cached_tokens async for output in outputs][-1])
        assert cached == expected
    finally:
        await model.engine.aclose()


@pytest.mark.parametrize("kv_dtype", ["auto", "float16", "fp8", "int8"])
async def test_the_type_of_keys_and_values_reaches_the_pool(tmp_path: Path, kv_dtype: str) -> None:
    source = str(write_model(tmp_path / "model"))
    options = {"models": {"m": {"source": source}}, "kv_cache": {"memory": 2**20, "dtype": kv_dtype}, "device": "cpu"}
    settings = read_settings(ProviderSettings(name="local", type="local", options=options))
    model = load_local_model("m", settings.models["m"], settings, lambda what, done, total: None)
    try:
        # Two layers of two heads of eight numbers, sixteen tokens a block; 8-bit numbers have a scale of 4 bytes.
        block_bytes = 2 * 2 * 2 * 16 * {"auto": 32, "float16": 16, "fp8": 12, "int8": 12}[kv_dtype]
        assert model.engine.stats().blocks_total == 2**20 // block_bytes - 1
    finally:
        await model.engine.aclose()


def test_too_little_memory_is_told_by_the_settings_name_and_with_the_least_that_works(tmp_path: Path) -> None:
    source = str(write_model(tmp_path / "model"))
    options = {"models": {"m": {"source": source}}, "kv_cache": {"memory": 100}, "device": "cpu"}
    settings = read_settings(ProviderSettings(name="local", type="local", options=options))
    told = r"^kv_cache\.memory: must be at least [0-9]+ bytes for this model, not 100$"
    with pytest.raises(InvalidInput, match=told):
        load_local_model("m", settings.models["m"], settings, lambda what, done, total: None)
