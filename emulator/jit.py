"""Compiling: one ``njit`` for the whole project, and the source line of every instruction.

Three decorators:

``njit``
    ``numba.njit`` with the project's fixed choices: no fastmath, and a file cache that a change in *any*
    source file of the package makes stale (Numba itself only looks at the file a function stands in, not at
    the files it inlines from).
``aicore``
    ``njit`` for code that runs on a core (``__aicore__`` in Ascend C). Each call of an instruction in it is
    given the number of the source line it stands on, so that events and faults can name it.
``instruction_names``
    the set the instruction set registers itself in, so ``aicore`` knows which calls to mark.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import tempfile
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import platformdirs
from numba import types

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""Folder that holds the project's packages (the checkout, or site-packages)."""

LAYERS = ("emulator", "ops", "studies")
"""Packages with compiled code, lowest first: code of one is inlined into later ones, never the other way."""

UNCOMPILED = ("ops/acl/", "ops/aclnn/", "ops/c_api/")
"""Folders without code that compiled code could come from (a lint test sees to it); no part of the key."""

instruction_names: set[str] = set()
"""Names of all instructions; filled by ``emulator.isa.table.instruction``."""


@cache
def sources_digest(layer: str) -> str:
    """Hex digest of every source file that compiled code of ``layer`` may come from, and of Numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for package in LAYERS[: LAYERS.index(layer) + 1]:
        for path in sorted((PACKAGE_ROOT / package).rglob("*.py")):
            name = path.relative_to(PACKAGE_ROOT).as_posix()
            if not name.startswith(UNCOMPILED):
                digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


@cache
def cache_dir(layer: str) -> str | None:
    """Folder of the compiled code of ``layer``, or None when no folder can be written (then nothing is cached).

    ``AICORE_CACHE_DIR`` names another place than the user's cache folder.
    """
    base = os.environ.get("AICORE_CACHE_DIR") or platformdirs.user_cache_dir("aicore-emulator", appauthor=False)
    path = Path(base) / "jit" / f"{layer}-{sources_digest(layer)}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return str(path)
    except OSError:
        return None


def _layer_of(function: Any) -> str | None:
    """The project's package a function stands in; None for a user's own kernel."""
    path = Path(inspect.getfile(function)).resolve()
    layer = path.relative_to(PACKAGE_ROOT).parts[0] if path.is_relative_to(PACKAGE_ROOT) else ""
    return layer if layer in LAYERS else None


def njit(function: Any = None, **options: Any) -> Any:
    """``numba.njit`` without fastmath and with the cache described above; use it for all compiled code."""
    if function is None:
        return lambda f: njit(f, **options)
    layer = _layer_of(function)
    folder = cache_dir(layer) if layer else None
    before = numba.config.CACHE_DIR
    try:
        numba.config.CACHE_DIR = folder or before
        compiled = numba.njit(fastmath=False, cache=folder is not None, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled if compiled is function else _without_literals(compiled)


def _without_literals(dispatcher: Any) -> Any:
    """Make compiled callers pass constants as plain integers.

    Numba would otherwise compile a function anew for every constant it is called with: once for each opcode
    and each source line here, which made the first start ten times longer.
    """
    resolve = dispatcher.get_call_template

    def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return resolve(tuple(types.unliteral(a) for a in args), {name: types.unliteral(a) for name, a in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


class _LineMarker(ast.NodeTransformer):
    """Adds ``line=<number>`` to every call of an instruction."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if name in instruction_names:
            node.keywords.append(ast.keyword("line", ast.copy_location(ast.Constant(node.lineno), node)))
        return node


def mark_lines(function: FunctionType) -> FunctionType:
    """A copy of ``function`` whose instruction calls carry the number of the line they stand on."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or function.__closure__:
        raise TypeError(f"{function.__qualname__} must be a plain module-level function to run on a core")
    definition.decorator_list = []
    definition.returns = None
    for argument in definition.args.args + definition.args.kwonlyargs:
        argument.annotation = None
    code = compile(ast.fix_missing_locations(_LineMarker().visit(tree)), function.__code__.co_filename, "exec")
    namespace: dict[str, Any] = {}
    exec(code, function.__globals__, namespace)
    marked: FunctionType = namespace[function.__name__]
    marked.__doc__, marked.__module__ = function.__doc__, function.__module__
    marked.__annotations__ = function.__annotations__
    return marked


def aicore(function: F) -> F:
    """Compile a function (or generator) that runs on a core; see the module's text."""
    compiled: F = njit(mark_lines(function))  # type: ignore[arg-type]
    return compiled
