"""Where there is no terminal, only what lasts says something, and says it on stderr."""

import pytest

from providers.local.load_progress import RECORDING, shown_progress


def test_a_quick_stage_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("tiny") as progress:
        progress("loading", 0, 100)
        progress("loading", 100, 100)
    assert capsys.readouterr() == ("", "")


def test_a_stage_that_lasts_says_how_far_it_is_and_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 0.0, 3.0, 6.0, 7.0, 12.0, 14.0])
    with shown_progress("tiny", clock=lambda: next(seconds)) as progress:
        for done_mib in range(4):
            progress("downloading", done_mib << 20, 94 << 20)
        progress("downloading", 4 << 20, None)
    said = "tiny: downloading 2 of 94 MiB\ntiny: downloading 4 MiB\ntiny: done after 14 s\n"
    assert capsys.readouterr().err == said


def test_what_fails_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 9.0])
    with pytest.raises(OSError, match="no space"), shown_progress("tiny", clock=lambda: next(seconds)):
        raise OSError("no space")
    assert capsys.readouterr().err == ""


def test_recorded_steps_are_counted_and_no_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 0.0, 6.0, 6.0])
    with shown_progress("tiny", clock=lambda: next(seconds)) as progress:
        progress(RECORDING, 1, 30)
        progress(RECORDING, 9, 30)
    assert capsys.readouterr().err == "tiny: recording steps 9 of 30\ntiny: done after 6 s\n"
