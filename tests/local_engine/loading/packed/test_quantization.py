"""What config.json says of packed weights: read, or refused by the key."""

from pathlib import Path
from typing import Any

import pytest

from local_engine.errors import ModelLoadError
from local_engine.loading.fields import FieldReader
from local_engine.loading.packed.fp8 import Fp8Packing
from local_engine.loading.packed.grouped import awq_packing, gptq_packing
from local_engine.loading.packed.mxfp4 import Mxfp4Packing
from local_engine.loading.packed.quantization import packing_of
from local_engine.loading.plain_source import Packing


def read(config: dict[str, Any] | None) -> Packing | None:
    return packing_of(FieldReader(Path("config.json"), {"quantization_config": config}))


def compressed(**weights: Any) -> dict[str, Any]:
    group = {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"} | weights}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("config", "packing"),
    [
        (None, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, Fp8Packing((128, 64))),
        ({"quant_method": "fp8", "weight_block_size": None}, Fp8Packing()),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, Fp8Packing()),
        (compressed(), Fp8Packing()),
        (compressed(strategy="block", block_structure=[128, 128]), Fp8Packing((128, 128))),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, gptq_packing(4, 64)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, gptq_packing(8, None)),
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
            gptq_packing(4, 128, zeros_less_one=False),
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "GEMM"}, awq_packing(128)),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, Mxfp4Packing()),
    ],
)
def test_a_known_packing_is_read(config: dict[str, Any] | None, packing: Packing | None) -> None:
    assert read(config) == packing


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method 'bitsandbytes', supported are fp8"),
        ({}, "quant_method is missing"),
        ({"quant_method": "gptq", "bits": 3}, "gptq of 3 bits, supported are 2, 4 and 8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size 0"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ({"quant_method": "awq", "bits": 8}, "awq of 8 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version 'gemv'"),
        ({"quant_method": "awq", "bits": 4, "zero_point": False}, "zero_point false"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size [128], expected two"),
        ({"quant_method": "fp8", "weight_block_size": [0, 8]}, "weight_block_size [0, 8], expected two"),
        (compressed() | {"format": "pack-quantized"}, "format 'pack-quantized'"),
        (compressed(num_bits=4), "config_groups.group_0 has 4-bit float"),
        (compressed(strategy="group"), "config_groups.group_0.strategy 'group'"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {}}}, "config_groups.g.weights is missing"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read(config)
    assert reason in caught.value.reason
