"""Reading what was typed: shapes, what-if changes, counts, the path of a figure."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.products import Product

FIGURE_TYPES = (".png", ".svg", ".pdf")
SHAPE_FORMS = "positive whole numbers as 32,64,56,56 or 32x64x56x56"


def refuse(what: str, *, got: object, allowed: str, remedy: str) -> Exception:
    """The error for a value that cannot be used."""
    from emulator.errors import EmulatorError, explain

    return EmulatorError(explain(what, got=got, allowed=allowed, remedy=remedy))


def parse_shape(text: str) -> tuple[int, ...]:
    """A shape of rank 2 to 8 from ``32,64,56,56`` or ``32x64x56x56``, in brackets or not.

    Raises EmulatorError, also for a rank or a dim that the operator cannot have.
    """
    from ops.reduce_sum.plan import check_shape

    inside = text.strip()
    if inside[:1] + inside[-1:] in ("()", "[]"):
        inside = inside[1:-1].strip().removesuffix(",")
    parts = [
        part.strip() for part in inside.lower().replace("x", ",").replace("\N{MULTIPLICATION SIGN}", ",").split(",")
    ]
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        raise refuse("SHAPE", got=text, allowed=SHAPE_FORMS, remedy="write 2 to 8 dims, the channels second")
    return check_shape([int(part) for part in parts], "SHAPE")


def _value(text: str) -> Any:
    """The number, word or tuple that ``text`` spells; ``Product.replace`` decides whether it will do."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def parse_changes(settings: list[str]) -> dict[str, Any]:
    """``field=value`` texts as the arguments of ``Product.replace``. Raises EmulatorError."""
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not (name and equals and text):
            raise refuse("--set", got=setting, allowed="FIELD=VALUE", remedy="write for example --set vector_cores=40")
        if name in changes:
            raise refuse(f"--set {name}", got="two values", allowed="one value for each field", remedy="remove one")
        changes[name] = tuple(t.strip() for t in text.split(",")) if name == "dtypes" else _value(text)
    return changes


def resolve_product(name: str | None, settings: list[str]) -> Product:
    """The product of that name (by default the emulator's) with the what-if changes. Raises EmulatorError."""
    from emulator import products

    changes = parse_changes(settings)
    product = products.get(products.DEFAULT_PRODUCT if name is None else name)
    return product.replace(**changes) if changes else product


def parse_count(text: str, what: str) -> int | None:
    """A whole number from 1 on, or None for ``all``. Raises EmulatorError."""
    if text.strip().lower() == "all":
        return None
    if not (text.strip().isascii() and text.strip().isdigit() and len(text) <= 18 and int(text) > 0):
        raise refuse(what, got=text, allowed="a whole number from 1 on, or all", remedy=f"write for example {what} 8")
    return int(text)


def check_figure(path: Path | None, option: str = "--figure") -> None:
    """Refuse, before any work, a figure that could not be written. Raises EmulatorError."""
    if path is None:
        return
    what, types = f"{option} {path}", ", ".join(FIGURE_TYPES)
    if path.suffix.lower() not in FIGURE_TYPES:
        raise refuse(what, got=path.suffix or "no ending", allowed=types, remedy="name a file with such an ending")
    if path.is_dir():
        raise refuse(what, got="a folder", allowed="a file", remedy="name a file in it")
    folder = path.parent
    if not folder.is_dir():
        got = "a folder that does not exist" if not folder.exists() else "a parent that is no folder"
        raise refuse(what, got=got, allowed="a file in an existing folder", remedy="make the folder first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        raise refuse(
            what, got="a folder that cannot be written", allowed="a folder you may write to", remedy="choose another"
        ) from None
