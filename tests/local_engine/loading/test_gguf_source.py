"""Tensors of a GGUF of every type that can be read, whole and stacked; and those that cannot be, by name."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from local_engine.errors import ModelLoadError
from local_engine.loading.gguf import GgufFile
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.weights import GgufName
from tests.local_engine.peak_memory import peak_bytes

ROWS, COLUMNS = 24, 512


def readable(kind: GGMLQuantizationType) -> bool:
    block, size = GGML_QUANT_SIZES[kind]
    try:
        quants.dequantize(np.zeros((1, COLUMNS // block * size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def quantized(values: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray | None:
    """The values in `kind`, where the package can make it."""
    try:
        return np.asarray(quants.quantize(values, kind))
    except NotImplementedError:
        return None


VALUES = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
READABLE = [kind for kind in GGMLQuantizationType if readable(kind)]
MADE = [kind for kind in READABLE if quantized(VALUES[:1], kind) is not None]


def write(path: Path, tensors: Mapping[str, tuple[np.ndarray, GGMLQuantizationType]]) -> GgufFile:
    """The tensors as they are, bytes of blocks along the last axis."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (values, kind) in tensors.items():
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path)


def read(source: GgufSource, name: str) -> torch.Tensor:
    out = torch.full(source.shapes[name], torch.nan)
    source.read_into(name, out)
    return out


def test_the_package_makes_the_types_that_this_file_is_about() -> None:
    assert {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"} <= {kind.name for kind in MADE}
    assert {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ2_XXS", "MXFP4"} <= {kind.name for kind in READABLE}


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.name)
def test_a_tensor_reads_as_it_was_quantised(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    stored = quantized(VALUES, kind)
    assert stored is not None
    with write(tmp_path / "m.gguf", {"t": (stored, kind)}) as file:
        found = read(GgufSource([file], {}), "t")
    assert np.array_equal(found.numpy(), quants.dequantize(stored, kind).reshape(VALUES.shape))
    # The types of one to two bits are far from the values; all of them are nearer than noise would be.
    assert np.abs(found.numpy() - VALUES).mean() < np.abs(VALUES).mean()


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_pieces_and_stacks_of_every_type_are_the_whole(
    kind: GGMLQuantizationType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    stored = np.random.default_rng(1).integers(0, 120, (4, 6, COLUMNS // block * size), dtype=np.uint8)
    monkeypatch.setattr("local_engine.loading.gguf_source._PIECE_BYTES", 2 * stored.shape[-1])
    names = {f"expert{index}": GgufName("t", expert=index) for index in range(4)}
    typed = stored.view({"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8))
    with write(tmp_path / "m.gguf", {"t": (typed, kind)}) as file, np.errstate(all="ignore"):
        whole = quants.dequantize(stored, kind).reshape(4, 6, COLUMNS)
        source = GgufSource([file], names)
        assert set(source.shapes) == set(names)
        assert sum(map(source.num_bytes, names)) == stored.nbytes
        for index in range(4):
            assert np.array_equal(read(source, f"expert{index}").numpy(), whole[index], equal_nan=True)


def test_a_type_that_cannot_be_read_is_named_with_the_tensor(tmp_path: Path) -> None:
    reason = "tensor 't' is of type I32, which cannot be read"
    tensors = {"t": (np.zeros((2, 32), np.int32), GGMLQuantizationType.I32)}
    with write(tmp_path / "m.gguf", tensors) as file, pytest.raises(ModelLoadError, match=reason):
        read(GgufSource([file], {}), "t")


@pytest.mark.parametrize(("kind", "count"), [("F32", 6), ("Q8_0", 64)])
def test_a_vector_of_any_type_is_read(kind: str, count: int, tmp_path: Path) -> None:
    stored = quantized(VALUES[0, :count], GGMLQuantizationType[kind])
    assert stored is not None
    with write(tmp_path / "m.gguf", {"t": (stored, GGMLQuantizationType[kind])}) as file:
        found = read(GgufSource([file], {}), "t")
    assert found.shape == (count,)
    torch.testing.assert_close(found, torch.from_numpy(VALUES[0, :count]), atol=0.05, rtol=0)


def test_interleaved_heads_are_put_in_order_in_vectors_and_matrices(tmp_path: Path) -> None:
    # Of two heads with four rows each, a file has rows 0, 2, 1, 3 of each.
    stored = np.array([0, 2, 1, 3, 4, 6, 5, 7], np.float32)
    tensors = {
        "v": (stored, GGMLQuantizationType.F32),
        "m": (np.repeat(stored[:, None], 3, 1), GGMLQuantizationType.F32),
    }
    with write(tmp_path / "m.gguf", tensors) as file:
        source = GgufSource([file], {name: GgufName(name, 2) for name in tensors})
        assert read(source, "v").tolist() == list(range(8))
        assert read(source, "m")[:, 2].tolist() == list(range(8))


@pytest.mark.parametrize("experts", [1, 2])
def test_experts_that_the_model_would_leave_out_are_named(experts: int, tmp_path: Path) -> None:
    reason = r"tensor 't' has shape \[3, 2, 4\], more than this architecture uses"
    tensors = {"t": (np.zeros((3, 2, 4), np.float32), GGMLQuantizationType.F32)}
    with write(tmp_path / "m.gguf", tensors) as file, pytest.raises(ModelLoadError, match=reason):
        GgufSource([file], {str(index): GgufName("t", expert=index) for index in range(experts)})


def test_no_second_copy_is_held(tmp_path: Path) -> None:
    values = np.zeros((2048, 4096), np.float32)
    stored = quantized(values, GGMLQuantizationType.Q8_0)
    assert stored is not None
    with write(tmp_path / "m.gguf", {"t": (stored, GGMLQuantizationType.Q8_0)}) as file:
        source = GgufSource([file], {})
        assert peak_bytes(lambda: read(source, "t")) < values.nbytes + (28 << 20)
