"""The functions that the headers declare, read from the headers themselves.

The headers keep to a form that a few patterns can read: one ``ACL_FUNC_VISIBILITY`` before every function,
``ACL_STATUS(name, value)`` for status codes, and plain typedefs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

INCLUDE = Path(__file__).resolve().parent / "include"
"""Folder with the headers, as it is handed to a compiler."""

HEADERS = (
    "acl/error_codes/rt_error_codes.h",
    "acl/acl_base.h",
    "acl/acl_rt.h",
    "acl/acl.h",
    "aclnn/acl_meta.h",
    "aclnn/aclnn_base.h",
    "aclnnop/aclnn_batch_norm_backward_reduce.h",
    "aclnnop/aclnn_batch_norm_reduce_backward.h",
)
"""All headers, each after those it needs."""

IN_C = frozenset({"aclFloat16ToFloat", "aclFloatToFloat16", "aclGetRecentErrMsg"})
"""Functions written in C (``src/start.c``): they work without an interpreter."""

Role = Literal["value", "address", "text", "out", "out_array"]
"""What a parameter is to Python: ``value`` a number, ``address`` a pointer or handle as an int, ``text`` a C string,
``out`` a place for one result, ``out_array`` a place for a new array of int64_t."""

STATUS_TYPES = ("aclError", "aclnnStatus")
HANDLES = ("aclrtStream", "aclrtContext", "aclrtEvent")
"""Typedefs of ``void *``."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a C function."""

    name: str
    type: str
    """As written, without the name: ``const int64_t *``."""
    role: Role


@dataclass(frozen=True, kw_only=True)
class Function:
    """One C function."""

    name: str
    result: str
    """As written: ``aclError``, ``aclTensor *``."""
    parameters: tuple[Parameter, ...]

    @property
    def returns_status(self) -> bool:
        """Whether the result is a status code; otherwise it is the value itself."""
        return self.result in STATUS_TYPES

    @property
    def arguments(self) -> str:
        """The parameters as C text."""
        return ", ".join(f"{p.type} {p.name}" for p in self.parameters) or "void"


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def _role(ctype: str) -> Role:
    if ctype in HANDLES:
        return "address"
    if "*" not in ctype:
        return "value"
    if ctype == "const char *":
        return "text"
    if ctype == "int64_t **":
        return "out_array"
    if ctype.startswith("const ") or ctype in ("void *", "aclTensor *", "aclOpExecutor *"):
        return "address"
    return "out"


def _parameter(text: str) -> Parameter:
    match = re.fullmatch(r"(.*?)(\w+)", text.strip(), flags=re.DOTALL)
    if match is None:
        raise ValueError(f"parameter {text!r}: got no name; allowed: a type and a name")
    ctype = " ".join(match[1].split())
    return Parameter(name=match[2], type=ctype, role=_role(ctype))


@cache
def functions() -> tuple[Function, ...]:
    """Every function of the headers, in their order."""
    found = []
    for header in HEADERS:
        text = _without_comments((INCLUDE / header).read_text(encoding="utf-8"))
        for result, name, arguments in re.findall(r"ACL_FUNC_VISIBILITY\s+([\w\s]+?[\s*]+)(\w+)\(([^)]*)\);", text):
            parameters = () if arguments.strip() == "void" else tuple(_parameter(a) for a in arguments.split(","))
            found.append(Function(name=name, result=" ".join(result.split()), parameters=parameters))
    return tuple(found)


def in_python() -> tuple[Function, ...]:
    """The functions that Python answers."""
    return tuple(f for f in functions() if f.name not in IN_C)


@cache
def constants() -> dict[str, int]:
    """Every status code and enumerator of the headers with its value."""
    found = {}
    for header in HEADERS:
        text = _without_comments((INCLUDE / header).read_text(encoding="utf-8"))
        patterns = (
            r"ACL_STATUS\((\w+), (-?\d+)\);",
            r"^#define (ACL_\w+) (\d+)$",
            r"^\s*(ACL_\w+) = (-?\w+),?$",
        )
        for pattern in patterns:
            found.update({name: int(value, 0) for name, value in re.findall(pattern, text, flags=re.MULTILINE)})
    return found


@cache
def type_declarations() -> str:
    """The typedefs of the headers, for cffi."""
    found = []
    for header in HEADERS:
        text = _without_comments((INCLUDE / header).read_text(encoding="utf-8"))
        found += re.findall(r"^typedef enum[^{]*\{[^}]*\} \w+;|^typedef [^{};]+;", text, flags=re.MULTILINE)
    return "\n".join(found)
