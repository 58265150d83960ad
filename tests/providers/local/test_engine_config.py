"""What run.yaml says about the engine, and what the device decides where it says nothing."""

import pytest

from providers.local.local_model import engine_config
from providers.local.settings import KvCacheSettings, LocalModelSettings, LocalSettings, SchedulerSettings

MODEL = LocalModelSettings()


def test_a_cpu_computes_in_float32_over_a_pool_of_one_gibibyte() -> None:
    config = engine_config(MODEL, LocalSettings(models={"a": MODEL}, device="cpu"))
    assert (config.device, config.float_dtype, config.max_batch_tokens) == ("cpu", "float32", 256)
    assert (config.kv_bytes, config.kv_share) == (1 << 30, None)


@pytest.mark.parametrize(("count", "share"), [(1, 0.9), (3, 0.3)])
def test_a_gpu_computes_in_bfloat16_and_its_models_share_what_is_free(count: int, share: float) -> None:
    models = {str(number): MODEL for number in range(count)}
    config = engine_config(MODEL, LocalSettings(models=models, device="cuda"))
    assert (config.device, config.float_dtype, config.max_batch_tokens) == ("cuda", "bfloat16", 2048)
    assert config.kv_share == pytest.approx(share)


def test_what_the_file_says_goes_before_the_device() -> None:
    config = engine_config(
        LocalModelSettings(dtype="float32"),
        LocalSettings(
            models={"a": MODEL},
            device="cuda",
            deterministic=True,
            tf32=True,
            tensor_parallel=4,
            kv_cache=KvCacheSettings(memory=1 << 33),
            scheduler=SchedulerSettings(max_batch_tokens=512),
        ),
    )
    assert (config.float_dtype, config.max_batch_tokens, config.kv_bytes) == ("float32", 512, 1 << 33)
    assert (config.kv_share, config.deterministic, config.tf32) == (None, True, True)
    assert config.tensor_parallel == 4
