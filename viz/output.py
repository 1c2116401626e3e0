"""Where output goes: consoles, JSON on stdout, files that are whole or not there."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

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


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A stream to a file beside ``path`` that takes its place once it is complete; after an error it is gone."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save_figure(figure: Any, path: Path) -> None:
    """Write a Matplotlib figure in the format its ending names."""
    with whole_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:].lower())


def save_text(text: str, path: Path) -> None:
    """Write text as UTF-8, line ends as they are."""
    with whole_file(path) as stream:
        stream.write(text.encode())
