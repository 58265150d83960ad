"""What run.yaml may say but this version cannot do. One table: delete a row when its feature arrives.

A row is the path of a key (`*` stands for any name or position) and the values that are taken although the feature is
missing, because they ask for nothing. Every other value is refused, so that nothing is ignored in silence. A value of
null asks for nothing anywhere.
"""

from collections.abc import Iterator, Mapping

from gateway.config.faults import Location

__all__ = ["NOT_AVAILABLE", "find_unavailable"]

NOT_AVAILABLE: Mapping[str, tuple[object, ...]] = {
    "providers.*.tensor_parallel": (1,),
}


def find_unavailable(value: object) -> Iterator[tuple[Location, str]]:
    """Where `value`, the whole file as plain values, asks for what this version cannot do, with what to say there."""
    for path, accepted in NOT_AVAILABLE.items():
        for location, found in _matches(value, tuple(path.split(".")), ()):
            if found is not None and found not in accepted:
                yield location, "not available in this version" + _only(accepted)


def _matches(value: object, steps: tuple[str, ...], at: Location) -> Iterator[tuple[Location, object]]:
    if not steps:
        yield at, value
        return
    head, *rest = steps
    children: dict[str | int, object] = {}
    if isinstance(value, Mapping):
        children = dict(value)
    elif isinstance(value, tuple) and head == "*":
        children = dict(enumerate(value))
    for step, child in children.items():
        if head in ("*", step):
            yield from _matches(child, tuple(rest), (*at, step))


def _only(accepted: tuple[object, ...]) -> str:
    words = [str(value).lower() for value in accepted if not isinstance(value, tuple | dict)]
    return f", expected {' or '.join(words)}" if words else ""
