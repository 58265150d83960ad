from pathlib import Path

import numpy as np
import pytest

from local_engine.errors import ModelLoadError
from local_engine.loading.fields import FieldReader
from local_engine.loading.recurrent_layers import gguf_recurrent_layers


def _fields(counts: object) -> FieldReader:
    return FieldReader(Path("m.gguf"), {"a.block_count": 4, "a.attention.head_count_kv": counts})


def test_layers_without_kv_heads_have_a_state() -> None:
    fields, layers = gguf_recurrent_layers(_fields(np.asarray([0, 2, 0, 2], dtype=np.int32)), "a")
    assert layers == {0, 2}
    assert fields.integer("a.attention.head_count_kv") == 2


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([0, 2], "has 2 items for 4 layers"),
        (2, "has 1 items for 4 layers"),
        ([0, 0, 0, 0], "has 0 numbers of kv heads, expected one"),
        ([0, 2, 4, 0], "has 2 numbers of kv heads, expected one"),
        (["2"] * 4, "holds str, expected integers"),
    ],
)
def test_other_lists_are_refused_by_name(counts: object, reason: str) -> None:
    with pytest.raises(ModelLoadError, match=f"a.attention.head_count_kv {reason}"):
        gguf_recurrent_layers(_fields(counts), "a")
