"""Names of models as Google writes them: `models/x`, as its own lists give them out, and `x` are the same."""

from adapters.model_path import model_path

__all__ = ["model_address", "model_resource"]

_COLLECTION = "models/"


def model_resource(model: str) -> str:
    """The name in a body."""
    return f"{_COLLECTION}{model.removeprefix(_COLLECTION)}"


def model_address(model: str) -> str:
    """The name in a path. Raises ModelNotFound."""
    return f"/{_COLLECTION}{model_path(model.removeprefix(_COLLECTION), slashes=True)}"
