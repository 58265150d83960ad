"""A part of a tensor: which rows and columns of a matrix one of several ranks has. Knows no names and no models."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["WHOLE", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a tensor: rows of its first dimension, range after range, and columns of its second. None: all of them.

    of_rows, of_columns: how many the whole tensor has; None where nothing is cut. absent: this rank has none of it,
    zero: it has zeros in its place.
    """

    rows: tuple[range, ...] | None = None
    columns: range | None = None
    of_rows: int | None = None
    of_columns: int | None = None
    absent: bool = False
    zero: bool = False

    @property
    def is_whole(self) -> bool:
        return self.rows is None and self.columns is None and not self.absent and not self.zero

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The part's. whole: the tensor's, which is given back where it is not the one that is cut."""
        found = list(whole)
        if (self.of_rows is not None and whole[:1] != (self.of_rows,)) or (
            self.of_columns is not None and whole[1:2] != (self.of_columns,)
        ):
            return whole
        if self.rows is not None:
            found[0] = sum(map(len, self.rows))
        if self.columns is not None:
            found[1] = len(self.columns)
        return tuple(found)

    def cut(self, x: Tensor, *, rows: tuple[int, int] | None = None, columns: tuple[int, int] | None = None) -> Tensor:
        """The part of x, a tensor that has to do with the matrix.

        rows, columns: the dimension of x along which the matrix's rows (columns) lie, and how many of them one of its
        items has. Raises ValueError where the part would begin or end within an item.
        """
        for ranges, place in ((self.rows, rows), (None if self.columns is None else (self.columns,), columns)):
            if ranges is not None and place is not None:
                dim, unit = place
                spans = [_items(each, unit, x.shape[dim]) for each in ranges]
                parts = [x.narrow(dim, span.start, len(span)) for span in spans]
                x = parts[0] if len(parts) == 1 else torch.cat(parts, dim)
        return x

    def meets(self, start: int, stop: int) -> bool:
        """Whether it has any of these rows."""
        return self.rows is None or any(part.start < stop and start < part.stop for part in self.rows)

    def write(self, out: Tensor, start: int, rows: Tensor) -> None:
        """Writes what it has of the tensor's `rows` from `start` on to their places in `out`, which is the part."""
        if self.columns is not None:
            rows = rows[:, self.columns.start : self.columns.stop]
        stop = start + len(rows)
        at = 0
        for part in self.rows or (range(stop),):
            first, last = max(part.start, start), min(part.stop, stop)
            if first < last:
                place = at + first - part.start
                out[place : place + last - first] = rows[first - start : last - start]
            at += len(part)


WHOLE = Share()


def _items(part: range, unit: int, count: int) -> range:
    """The items of `unit` that make up the part; the last of `count` may be shorter."""
    first, last = part.start // unit, -(-part.stop // unit)
    if part.start % unit or (part.stop % unit and last != count):
        raise ValueError(f"{part.start} to {part.stop}: expected multiples of {unit}")
    return range(first, last)
