"""Whom a provider's connections trust."""

from pathlib import Path

from providers.remote.tls import trusting
from tests.certificates import certificate


def test_a_file_of_authorities_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path)
    first = trusting(str(cert)).get_ca_certs(binary_form=True)
    certificate(tmp_path)
    second = trusting(str(cert)).get_ca_certs(binary_form=True)
    assert (len(first), len(second)) == (1, 1)
    assert first != second


def test_the_systems_authorities_are_read_once() -> None:
    assert trusting(None) is trusting(None)
