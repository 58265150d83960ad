"""The facts of each error class."""

import re
from collections.abc import Iterator

import pytest

from adapters.canonical import errors
from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    QueueFull,
    UpstreamAuth,
    UpstreamError,
    UpstreamQuota,
)


def tree(root: type[GatewayError] = GatewayError) -> Iterator[type[GatewayError]]:
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from tree(child)


CLASSES = list(tree())
every_class = pytest.mark.parametrize("error", CLASSES, ids=lambda error: str(error.__name__))


def test_the_module_lists_and_draws_every_class() -> None:
    names = {error.__name__ for error in CLASSES} | {"GatewayError"}
    assert set(errors.__all__) == names
    assert set(re.findall(r"\b[A-Z][a-z]\w+(?= {2,}| \d|$)", drawing(), re.MULTILINE)) == names


def drawing() -> str:
    doc = errors.__doc__ or ""
    return "\n".join(line for line in doc.splitlines() if "──" in line or line.strip() == "GatewayError")


@every_class
def test_the_drawing_shows_the_status_where_it_is_not_the_parents(error: type[GatewayError]) -> None:
    line = next(line for line in drawing().splitlines() if re.search(rf"\b{error.__name__}\b", line))
    shown = re.search(rf"{error.__name__} (\d+)", line)
    parent = error.__mro__[1]
    assert (int(shown[1]) if shown else parent.status) == error.status  # type: ignore[attr-defined]


@every_class
def test_every_class_states_a_status_and_a_type(error: type[GatewayError]) -> None:
    assert 400 <= error.status <= 599
    assert re.fullmatch(r"[a-z_]+", error.type)
    assert error.default_code is None or re.fullmatch(r"[a-z_]+", error.default_code)


@every_class
def test_what_may_be_retried_may_fail_over(error: type[GatewayError]) -> None:
    assert error.fails_over or not error.retryable


@every_class
def test_a_fault_of_the_client_is_never_retried(error: type[GatewayError]) -> None:
    if issubclass(error, InvalidRequest) or error.status in (401, 403, 404, 405):
        assert not error.retryable
        assert not error.fails_over or error is ModelNotFound


@every_class
def test_upstream_faults_a_full_engine_and_a_model_that_one_lacks_may_go_elsewhere(error: type[GatewayError]) -> None:
    assert error.fails_over is (issubclass(error, UpstreamError | QueueFull | NotReady | ModelNotFound))


def test_an_upstream_that_will_refuse_again_is_not_asked_again() -> None:
    assert not UpstreamAuth.retryable
    assert not UpstreamQuota.retryable
    assert UpstreamError.retryable


def test_an_error_carries_what_the_client_is_told() -> None:
    error = InvalidRequest("n: too many", param="n", retry_after_s=1.5, should_retry=False)
    assert (str(error), error.message, error.param, error.code) == ("n: too many", "n: too many", "n", None)
    assert (error.retry_after_s, error.should_retry) == (1.5, False)
    assert UpstreamError("x", upstream_status=418, code="teapot").code == "teapot"
    assert UpstreamError("x", upstream_status=418).upstream_status == 418
