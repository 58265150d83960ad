"""Rows on stdout: drawn where a person looks at a terminal, plain columns elsewhere."""

import sys
from collections.abc import Sequence

__all__ = ["print_table", "render_bytes"]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a titled table; nothing if there are no rows."""
    if not rows:
        return
    if sys.stdout.isatty():
        _draw(title, columns, rows)
        return
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    print(title)
    for row in (columns, *rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def render_bytes(size_bytes: int) -> str:
    """`98362432` -> `94 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
