"""A model's name as a part of an upstream's path. Knows no dialect."""

from urllib.parse import quote

from adapters.canonical.errors import ModelNotFound

__all__ = ["model_path"]

_DOTS = frozenset((".", ".."))


def model_path(model: str, *, slashes: bool = False) -> str:
    """The name quoted; with `slashes` those in it part its path.

    Servers resolve `.` and `..` also where they were written by a client, so that a name with such a part would reach
    another path with the gateway's key, and another model than the one that the client may use. Raises ModelNotFound.
    """
    if not _DOTS.isdisjoint(model.split("/")):
        raise ModelNotFound(f"the model '{model}' does not exist", param="model")
    return quote(model, safe="/" if slashes else "")
