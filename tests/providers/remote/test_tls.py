"""Whom a provider's connections trust."""

from pathlib import Path

import pytest

from providers.remote.tls import trusting
from tests.certificates import certificate


def test_a_file_of_authorities_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    assert trusting(str(cert)) is not None
    cert.write_text("no certificate")
    with pytest.raises(OSError):
        trusting(str(cert))


def test_the_systems_authorities_are_read_once() -> None:
    assert trusting(None) is trusting(None)
