"""Repacked blocks of a GGUF against the gguf package's dequantisation, to the last bit."""

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from local_engine.layers.quantized_matrix import beside_each_other
from local_engine.loading.repacked.gguf import REPACKED_TYPES, gguf_matrix

_FACTORS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q6_K": (208,)}


def _rows(kind: GGMLQuantizationType, num_outputs: int, num_blocks: int) -> np.ndarray:
    """Any bytes but where the factors are, which are numbers of either sign."""
    random = np.random.default_rng(7)
    blocks = random.integers(0, 256, (num_outputs, num_blocks, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in _FACTORS.get(kind.name, (0,)):
        factors = random.standard_normal((num_outputs, num_blocks, 1)).astype(np.float16)
        blocks[..., at : at + 2] = factors.view(np.uint8)
    return blocks.reshape(num_outputs, -1)


@pytest.mark.parametrize("kind", sorted(REPACKED_TYPES), ids=lambda kind: kind.name)
@pytest.mark.parametrize(("num_outputs", "num_blocks"), [(7, 3), (1, 1), (16, 8)])
def test_every_number_is_the_one_of_the_file(kind: GGMLQuantizationType, num_outputs: int, num_blocks: int) -> None:
    rows = _rows(kind, num_outputs, num_blocks)
    matrix = gguf_matrix(torch.from_numpy(rows), kind)
    assert torch.equal(matrix.dense(), torch.from_numpy(dequantize(rows, kind)))


@pytest.mark.parametrize("kind", sorted(REPACKED_TYPES), ids=lambda kind: kind.name)
def test_whole_tiles_take_hardly_more_than_in_the_file(kind: GGMLQuantizationType) -> None:
    rows = _rows(kind, 4, 1024 // GGML_QUANT_SIZES[kind][0])
    assert gguf_matrix(torch.from_numpy(rows), kind).num_bytes <= rows.nbytes * 1.03


def test_matrices_of_one_form_stand_beside_each_other_and_others_are_refused() -> None:
    kind = GGMLQuantizationType.Q4_K
    parts = [gguf_matrix(torch.from_numpy(_rows(kind, outputs, 2)), kind) for outputs in (5, 3, 8)]
    assert torch.equal(beside_each_other(parts).dense(), torch.cat([part.dense() for part in parts]))
    assert beside_each_other(parts[:1]) is parts[0]
    other = gguf_matrix(torch.from_numpy(_rows(GGMLQuantizationType.Q6_K, 5, 2)), GGMLQuantizationType.Q6_K)
    with pytest.raises(ValueError, match="one form"):
        beside_each_other([parts[0], other])


def test_other_types_and_torn_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="got IQ4_NL"):
        gguf_matrix(torch.zeros(1, 18, dtype=torch.uint8), GGMLQuantizationType.IQ4_NL)
    with pytest.raises(ValueError, match="multiple of 18"):
        gguf_matrix(torch.zeros(1, 19, dtype=torch.uint8), GGMLQuantizationType.Q4_0)
