"""Where output goes: consoles, JSON on stdout, files that are whole or not there."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 120
"""Columns of a report that goes to a file or a pipe, unless COLUMNS says otherwise."""


@contextmanager
def printing() -> Iterator[Console]:
    """A console whose text goes to stdout, as it is and without blanks at the end of lines."""
    from rich.console import Console

    free = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if free else PLAIN_WIDTH, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        yield console
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def note(text: str) -> None:
    """One line for the person at the terminal, on stderr."""
    sys.stderr.write(f"aicore: {' '.join(text.split())}\n")
    sys.stderr.flush()


def print_json(record: Any) -> None:
    """One strict JSON object on stdout."""
    sys.stdout.write(json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n")


def save_figure(figure: Any, path: Path) -> None:
    """Write a Matplotlib figure beside its place, then move it there."""
    kind = path.suffix.lower()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=kind)
    try:
        with os.fdopen(handle, "wb") as stream:
            figure.savefig(stream, format=kind[1:])
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
