"""Tables and numbers as reports print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def count(n: int) -> str:
    """A whole number with thousands apart."""
    return f"{n:,}"


def size(n: int) -> str:
    """Bytes."""
    return f"{n:,} B"


def span(first_last: tuple[int, int]) -> str:
    """A half-open range as its first and last number."""
    first, end = first_last
    if end <= first:
        return "none"
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


def plural(n: int, word: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def percent(part: int, whole: int) -> str:
    """A share."""
    return f"{part / whole:.1%}"


def seconds(s: float) -> str:
    """A duration to three digits."""
    return f"{s * 1000:.3g} ms" if s < 1 else f"{s:.1f} s"


def number(value: float, dtype: str) -> str:
    """The shortest text that reads back as this number of ``dtype``."""
    from emulator import formats

    return str(formats.get(dtype).dtype.type(value))


def grid(rows: Iterable[tuple[str, str]]) -> Table:
    """Labels and their texts."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return table


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, left: Sequence[str] = ()) -> Group:
    """A title over a table; columns are flush right but those named in ``left``."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    out = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        out.add_column(name, justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        out.add_row(*map(str, row))
    return Group(Text(title, style="bold"), out, Text())
