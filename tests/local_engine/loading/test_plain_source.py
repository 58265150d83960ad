"""Plain tensors out of safetensors files: names, errors and memory. The formats have tests of their own."""

import contextlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from local_engine.errors import ModelLoadError
from local_engine.loading.packed.fp8 import Fp8Packing
from local_engine.loading.packed.grouped import awq_packing, gptq_packing
from local_engine.loading.packed.mxfp4 import Mxfp4Packing
from local_engine.loading.plain_source import HfName, Packing, PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import Weights
from tests.local_engine.peak_memory import peak_bytes

ROWS, COLUMNS = 2048, 4096

PACKED: dict[str, tuple[dict[str, torch.Tensor], Packing | None]] = {
    "plain": ({"m.weight": torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)}, None),
    "fp8": (
        {"m.weight": torch.zeros(ROWS, COLUMNS).to(torch.float8_e4m3fn), "m.weight_scale_inv": torch.ones(16, 32)},
        Fp8Packing((128, 128)),
    ),
    "gptq": (
        {
            "m.qweight": torch.zeros(COLUMNS // 8, ROWS, dtype=torch.int32),
            "m.qzeros": torch.zeros(32, ROWS // 8, dtype=torch.int32),
            "m.scales": torch.ones(32, ROWS, dtype=torch.float16),
        },
        gptq_packing(4, 128),
    ),
    "awq": (
        {
            "m.qweight": torch.zeros(COLUMNS, ROWS // 8, dtype=torch.int32),
            "m.qzeros": torch.zeros(32, ROWS // 8, dtype=torch.int32),
            "m.scales": torch.ones(32, ROWS, dtype=torch.float16),
        },
        awq_packing(128),
    ),
    "mxfp4": (
        {
            "e_blocks": torch.zeros(1, ROWS, COLUMNS // 32, 16, dtype=torch.uint8),
            "e_scales": torch.zeros(1, ROWS, COLUMNS // 32, dtype=torch.uint8),
        },
        Mxfp4Packing(),
    ),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_second_copy_is_held(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    tensors, packing = PACKED[kind]
    save_file(tensors, tmp_path / "model.safetensors")
    with contextlib.closing(SafetensorsSource(tmp_path)) as file:
        source = PlainSource(file, packing=packing, names={"m.weight": HfName("e", 0)})
        weights = Weights(source, device=torch.device("cpu"), dtype=dtype)
        # Beside the weights: some pieces of a million numbers, one of the 8 million here.
        bound = ROWS * COLUMNS * dtype.itemsize + (30 << 20)
        assert peak_bytes(lambda: weights.stacked(["m.weight"], [ROWS], COLUMNS)) < bound
        weights.finish()


def read(folder: Path, packing: Packing | None) -> None:
    with contextlib.closing(SafetensorsSource(folder)) as file:
        weights = Weights(PlainSource(file, packing=packing), device=torch.device("cpu"), dtype=torch.float32)
        weights.stacked(["a.q_proj.weight"], [16], 64)
        weights.finish()


def reason_of(folder: Path, tensors: dict[str, torch.Tensor], packing: Packing | None) -> str:
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelLoadError) as caught:
        read(folder, packing)
    return caught.value.reason


def test_errors_name_the_packed_tensor_too(tmp_path: Path) -> None:
    parts = {
        "qweight": torch.zeros(8, 8, dtype=torch.int32),
        "qzeros": torch.zeros(1, 1, dtype=torch.int32),
        "scales": torch.ones(1, 8, dtype=torch.float16),
    }
    right = {"a.q_proj." + part: tensor for part, tensor in parts.items()}
    packing = gptq_packing(4, None)
    assert reason_of(tmp_path, right, packing) == (
        "tensor 'a.q_proj.weight' has shape [8, 64], expected [16, 64] (in the file: 'a.q_proj.qweight')"
    )
    other = {"b.q_proj." + part: tensor for part, tensor in parts.items()}
    assert reason_of(tmp_path, other, packing) == (
        "tensor 'a.q_proj.weight' is missing (in the file: 'a.q_proj.qweight')"
    )
    assert reason_of(tmp_path, {"a.q_proj.weight": torch.ones(16, 64), **other}, packing) == (
        "tensor 'b.q_proj.weight' has no place in this architecture (in the file: 'b.q_proj.qweight')"
    )
    assert reason_of(tmp_path, {"a.q_proj.weight": torch.ones(16, 64), "c.scales": torch.ones(1)}, packing) == (
        "tensor 'c.scales' has no place in this architecture"
    )


def test_integers_are_no_weights(tmp_path: Path) -> None:
    reason = reason_of(tmp_path, {"a.q_proj.weight": torch.ones(16, 64, dtype=torch.int32)}, None)
    assert reason.startswith("tensor 'a.q_proj.weight' is of type I32, expected one of F64, F32, F16, BF16")


def test_a_single_file_of_another_name_is_the_model(tmp_path: Path) -> None:
    save_file({"t": torch.ones(1)}, tmp_path / "gptq_model-4bit-128g.safetensors")
    with contextlib.closing(SafetensorsSource(tmp_path)) as file:
        assert list(file.shapes) == ["t"]
    save_file({"t": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelLoadError, match="holds neither"):
        SafetensorsSource(tmp_path)
