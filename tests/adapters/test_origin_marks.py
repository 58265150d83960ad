import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.origin_marks import marked, unmarked

NAMES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1)


@given(blob=st.text(st.characters(exclude_categories=["Cs"])), origin=NAMES)
def test_a_marked_blob_comes_back_with_its_maker_in_either_alphabet(blob: str, origin: str) -> None:
    found = marked(blob, origin)
    assert unmarked(found) == (blob, origin)
    again = base64.urlsafe_b64encode(base64.b64decode(found)).decode()
    assert unmarked(again) == (blob, origin)


@pytest.mark.parametrize("blob", ["", "SIG+/==", "Z3dvOjEK", "Z3dvOjEK!", marked("x", "up")[:-3]])
def test_a_blob_that_was_not_handed_out_here_stays_as_it_is(blob: str) -> None:
    assert unmarked(blob) == (blob, None)


def test_a_blob_without_a_maker_gets_no_mark() -> None:
    assert marked("SIG", None) == "SIG"
