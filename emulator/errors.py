"""Errors that bad input causes.

Every text is one line and says four things: what was being set or asked for, what was given, what is
allowed, and what to do about it. ``explain`` puts them together so that all errors read alike.
"""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def explain(what: str, *, got: object, allowed: str, remedy: str) -> str:
    """Return the one-line text of an error; ``got`` is shown by its (shortened) ``repr``."""
    text = f"{what}: got {_SHORT.repr(got)}; allowed: {allowed}; {remedy}"
    return " ".join(text.split())


class EmulatorError(ValueError):
    """Base of every error that bad input causes. See ``explain`` for the form of its text."""


class ProductError(EmulatorError):
    """A product name, a product's value or a product file is not acceptable."""
