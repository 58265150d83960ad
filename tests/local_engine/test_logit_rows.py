"""Rows of logits are copied as torch copies them, and are memory of their own."""

import torch

from local_engine.logit_rows import copied_rows, joined_rows

LOGITS = torch.randn(5, 70, generator=torch.Generator().manual_seed(1))


def test_the_rows_asked_for_come_in_their_order_and_may_be_written_to() -> None:
    whole = LOGITS.clone()
    found = copied_rows(whole, [3, 0, 3])
    assert torch.equal(found, LOGITS[[3, 0, 3]])
    found.zero_()
    assert torch.equal(whole, LOGITS)


def test_parts_stand_one_under_the_other() -> None:
    parts = [copied_rows(LOGITS, [4]), copied_rows(LOGITS, [1, 2])]
    assert torch.equal(joined_rows(parts), LOGITS[[4, 1, 2]])


def test_tensors_of_inference_mode_are_taken() -> None:
    with torch.inference_mode():
        assert torch.equal(copied_rows(LOGITS * 1, [2]), LOGITS[[2]])
