"""Rows of the embedding, and logits of selected rows, against their twins."""

import pytest
import torch

from local_engine.kernels.triton.embedding import (
    embedding,
    embedding_twin,
    quantized_embedding,
    quantized_embedding_twin,
)
from local_engine.kernels.triton.selected_logits import selected_logits, selected_logits_twin
from tests.local_engine.kernels.triton.interpreted.quantized_matrices import FORMS, quantized_matrix

_IDS = torch.tensor([3, 0, 19, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [64, 1025, 0])
@pytest.mark.parametrize("scale", [1.0, 8.0, 33.94])
def test_rows_are_those_of_the_tokens(width: int, dtype: torch.dtype, scale: float) -> None:
    table = torch.randn(20, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    torch.testing.assert_close(embedding(_IDS, table, scale=scale), embedding_twin(_IDS, table, scale=scale))
    if scale == 1.0:
        assert torch.equal(embedding(_IDS, table), table[_IDS])


def test_parts_of_a_vocabulary_add_up() -> None:
    table = torch.randn(20, 48, generator=torch.Generator().manual_seed(1))
    first, second = embedding(_IDS, table[:8]), embedding(_IDS, table[8:], first_id=8)
    assert not first[2].any()
    assert not second[1].any()
    assert torch.equal(first + second, table[_IDS])


@pytest.mark.parametrize("form", [form for form in FORMS if form != "order"])
def test_rows_in_few_bits_are_the_numbers_that_they_stand_for(form: str) -> None:
    matrix = quantized_matrix(form, 20, 96)
    for scale, first_id in ((1.0, 0), (3.0, 2)):
        out = quantized_embedding(_IDS, matrix, torch.float32, scale=scale, first_id=first_id)
        expected = quantized_embedding_twin(_IDS, matrix, torch.float32, scale=scale, first_id=first_id)
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-7)


def test_a_matrix_of_moved_inputs_is_no_embedding() -> None:
    with pytest.raises(ValueError, match=r"matrix\.order"):
        quantized_embedding(_IDS, quantized_matrix("order", 20, 96), torch.float32)
    with pytest.raises(ValueError, match=r"token_ids: expected torch\.int64"):
        embedding(_IDS.int(), torch.zeros(20, 4))


@pytest.mark.parametrize("rows", [None, torch.tensor([4, 1]), torch.tensor([], dtype=torch.int64)])
@pytest.mark.parametrize("soft_cap", [None, 5.0])
def test_logits_are_those_of_the_rows_that_are_asked_for(rows: torch.Tensor | None, soft_cap: float | None) -> None:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(5, 96, generator=generator)
    for head in (torch.randn(30, 96, generator=generator), quantized_matrix("Q8_0", 30, 96)):
        out = selected_logits(hidden, rows, head, soft_cap=soft_cap)
        expected = selected_logits_twin(hidden, rows, head, soft_cap=soft_cap)
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)


def test_logits_are_in_the_type_of_the_rows_unless_they_are_capped() -> None:
    hidden, head = torch.ones(2, 8).half(), torch.full((3, 8), 0.25).half()
    for logits in (selected_logits, selected_logits_twin):
        assert logits(hidden, None, head).dtype == torch.float16
        assert logits(hidden, None, head, soft_cap=5.0).dtype == torch.float32
