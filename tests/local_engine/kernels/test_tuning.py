"""What was measured of kernels is kept: by device and shape, and only as long as it can be believed."""

from pathlib import Path

import pytest

from local_engine.kernels.tuning import Tuning

TIMES = {1: 3.0, 2: 1.0, 4: 2.0}


def refuse(variant: int) -> float:
    raise AssertionError(f"measured {variant} again")


def test_the_fastest_is_measured_once_and_found_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "tuning.json"
    first = Tuning(file, "gpu")
    assert first.best("decode", "8 x 128", (1, 2, 4), TIMES.__getitem__) == 2
    assert first.best("decode", "8 x 128", (1, 2, 4), refuse) == 2
    first.save()
    assert Tuning(file, "gpu").best("decode", "8 x 128", (1, 2, 4), refuse) == 2


def test_other_devices_shapes_and_variants_are_measured_for_themselves(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    first = Tuning(file, "gpu")
    first.best("decode", "a", (1, 2, 4), TIMES.__getitem__)
    first.save()
    for device, shape, variants in (("other", "a", (1, 2, 4)), ("gpu", "b", (1, 2, 4)), ("gpu", "a", (1, 4))):
        with pytest.raises(AssertionError, match="measured"):
            Tuning(file, device).best("decode", shape, variants, refuse)


def test_two_processes_keep_what_both_found(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    one, two = Tuning(file, "gpu"), Tuning(file, "gpu")
    one.best("decode", "a", (1, 2), TIMES.__getitem__)
    two.best("decode", "b", (1, 2), TIMES.__getitem__)
    one.save()
    two.save()
    again = Tuning(file, "gpu")
    assert again.best("decode", "a", (1, 2), refuse) == again.best("decode", "b", (1, 2), refuse) == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"gpu": {"decode a of 1,2": 7}}', '{"gpu": {"x": "y"}}'])
def test_a_file_that_makes_no_sense_is_measured_over(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(content, encoding="utf-8")
    tuning = Tuning(file, "gpu")
    assert tuning.best("decode", "a", (1, 2), TIMES.__getitem__) == 2
    tuning.save()
    assert Tuning(file, "gpu").best("decode", "a", (1, 2), refuse) == 2


def test_where_nothing_can_be_kept_it_goes_on_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    for path in (None, blocked / "tuning.json"):
        tuning = Tuning(path, "gpu")
        assert tuning.best("decode", "a", (1, 2), TIMES.__getitem__) == 2
        tuning.save()
    assert "could not be kept" in caplog.text
