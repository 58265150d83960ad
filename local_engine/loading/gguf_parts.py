"""A GGUF that lies in several files, as llama.cpp's gguf-split writes it: NAME-00001-of-00003.gguf and so on.

The first part has all metadata; tensors are spread over all of them.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from local_engine.errors import ModelLoadError
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile

__all__ = ["is_later_part", "open_gguf"]

_PART = re.compile(r"(?P<name>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def is_later_part(name: str) -> bool:
    """Whether a file of that name is a part of a split GGUF and not its first, which stands for all of it."""
    part = _PART.fullmatch(name)
    return part is not None and int(part["number"]) != 1


@contextmanager
def open_gguf(path: Path) -> Iterator[list[GgufFile]]:
    """The parts in order; one file where it is not split. `path` is the first part, the others lie beside it.

    Raises ModelLoadError for a part that is missing, belongs elsewhere or repeats a tensor.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(GgufFile(path))]
        fields = FieldReader(path, files[0].metadata)
        count = fields.integer("split.count", 1)
        if count > 1:
            names = _part_names(path, count)
            if number := fields.integer("split.no", 0):
                fields.refuse(f"part {number + 1} of {count} of a split GGUF; load {names[0]}")
            files += [stack.enter_context(GgufFile(path.with_name(name))) for name in names[1:]]
            _check(files, fields)
        yield files


def _part_names(path: Path, count: int) -> list[str]:
    part = _PART.fullmatch(path.name)
    if part is None or int(part["count"]) != count:
        expected = f"NAME-00001-of-{count:05d}.gguf"
        raise ModelLoadError(path, f"one of {count} parts of a split GGUF, whose names must be like {expected}")
    return [f"{part['name']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def _check(files: list[GgufFile], first: FieldReader) -> None:
    found: dict[str, Path] = {}
    for index, file in enumerate(files):
        fields = FieldReader(file.path, file.metadata)
        place = fields.integer("split.no", 0), fields.integer("split.count", 1)
        if place != (index, len(files)):
            fields.refuse(f"says it is part {place[0] + 1} of {place[1]}, expected {index + 1} of {len(files)}")
        for name in file.tensors:
            if name in found:
                fields.refuse(f"tensor {name!r} is in {found[name].name} too")
            found[name] = file.path
    total = first.integer("split.tensors.count", len(found))
    if total != len(found):
        first.refuse(f"split.tensors.count is {total}, the parts have {len(found)} tensors")
