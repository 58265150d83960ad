"""A model's name in a path: quoted, and never a way to another path."""

import pytest

from adapters.canonical.errors import ModelNotFound
from adapters.model_path import model_path


@pytest.mark.parametrize(
    ("model", "slashes", "path"),
    [
        ("gemini-3-flash", True, "gemini-3-flash"),
        ("tuned/mine", True, "tuned/mine"),
        ("tuned/mine", False, "tuned%2Fmine"),
        ("arn:aws:bedrock:1/x", False, "arn%3Aaws%3Abedrock%3A1%2Fx"),
        ("m?key=x#y", True, "m%3Fkey%3Dx%23y"),
        ("m\r\nx: y", True, "m%0D%0Ax%3A%20y"),
        ("%2e%2e", False, "%252e%252e"),
        ("v1.5", True, "v1.5"),
        ("..m/m..", True, "..m/m.."),
    ],
)
def test_a_name_is_quoted(model: str, slashes: bool, path: str) -> None:
    assert model_path(model, slashes=slashes) == path


@pytest.mark.parametrize("slashes", [False, True])
@pytest.mark.parametrize("model", [".", "..", "../x", "cheap/../dear", "cheap/.", "a/../../files"])
def test_a_name_with_a_dot_segment_is_no_model(model: str, slashes: bool) -> None:
    with pytest.raises(ModelNotFound):
        model_path(model, slashes=slashes)
