"""Rules that a program can check by reading the sources; CONTRIBUTING.md gives the reasons.

Each rule is a function from a `Source` to findings. It runs over every file of the four packages, and over
small bad and good snippets that show that it can fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from emulator.jit import UNCOMPILED

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "emulator": {"emulator"},
    "ops": {"ops", "emulator"},
    "studies": {"studies", "ops", "emulator"},
    "viz": {"viz", "studies", "ops", "emulator"},
}
"""Which of our packages each of them may import."""

SILENT = {"emulator", "ops", "studies"}
"""Packages that never print: what a person sees is the job of viz."""

JIT_FILE = "emulator/jit.py"
COMPILERS = {"njit", "jit", "vectorize", "guvectorize"}
COMPILING = {
    ("emulator.jit", "njit"),
    ("emulator.jit", "aicore"),
    ("emulator.launch", "kernel"),
    ("emulator", "kernel"),
}
"""Our own decorators that compile."""
MAX_LINES = 500

PARALLEL_ALLOWED: dict[str, str] = {}
"""Files that may use prange, each with the reason why no float reduction can happen in it."""


class Source(NamedTuple):
    """One file: its path from the root of the project, and its text."""

    path: str
    text: str

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(ast.parse(self.text))


class Finding(NamedTuple):
    path: str
    line: int
    text: str


def imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """Every import as (line, module, name); ``name`` is "" for a plain ``import module``."""
    for node in source.nodes():
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, node.module or "", alias.name) for alias in node.names)


def options(source: Source) -> Iterator[tuple[int, str, ast.expr]]:
    """Every option as (line, name, value): keyword arguments, and the entries of dicts with text keys."""
    for node in source.nodes():
        if isinstance(node, ast.keyword) and node.arg:
            yield node.value.lineno, node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.lineno, key.value, value


def is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


# The rules


def compilers_outside_jit(source: Source) -> Iterator[Finding]:
    """Only emulator/jit.py takes njit and its like from Numba."""
    if source.path == JIT_FILE:
        return
    numba_names = set()
    for node in source.nodes():
        if isinstance(node, ast.Import):
            numba_names |= {alias.asname or "numba" for alias in node.names if alias.name.split(".")[0] == "numba"}
    for line, module, name in imports(source):
        if module.split(".")[0] == "numba" and name in COMPILERS | {"*"}:
            yield Finding(source.path, line, f"imports {name} from {module}; use emulator.jit")
    for node in source.nodes():
        if isinstance(node, ast.Attribute) and node.attr in COMPILERS:
            base = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in numba_names:
                yield Finding(source.path, node.lineno, f"uses numba's {node.attr}; use emulator.jit")


def options_that_change_bits(source: Source) -> Iterator[Finding]:
    """No fastmath other than False anywhere, and no error_model outside emulator/jit.py."""
    for line, name, value in options(source):
        if name == "fastmath" and not is_off(value):
            yield Finding(source.path, line, "fastmath reorders and contracts float operations; leave it off")
        if name == "error_model" and source.path != JIT_FILE:
            yield Finding(source.path, line, "error_model belongs to emulator/jit.py alone")


def parallel_loops(source: Source) -> Iterator[Finding]:
    """No prange and no parallel=True: both let Numba split a float reduction."""
    if source.path in PARALLEL_ALLOWED:
        return
    remedy = "use nogil kernels on threads, each with its own part of the output"
    for line, name, value in options(source):
        if name == "parallel" and isinstance(value, ast.Constant) and value.value is True:
            yield Finding(source.path, line, f"parallel lets Numba split float sums; {remedy}")
    for node in source.nodes():
        names = {
            ast.Name: lambda n: n.id,
            ast.Attribute: lambda n: n.attr,
            ast.alias: lambda n: n.name,
        }
        if type(node) in names and names[type(node)](node) == "prange":
            yield Finding(source.path, node.lineno, f"prange may reduce floats in no fixed order; {remedy}")


def layers(source: Source) -> Iterator[Finding]:
    """A lower layer never imports a higher one."""
    for line, module, _ in imports(source):
        top = module.split(".")[0]
        if top in MAY_IMPORT and top not in MAY_IMPORT[source.package]:
            allowed = ", ".join(sorted(MAY_IMPORT[source.package]))
            yield Finding(source.path, line, f"{source.package} imports {module}; allowed: {allowed}")


def prints(source: Source) -> Iterator[Finding]:
    """Library code returns what it has to say."""
    if source.package not in SILENT:
        return
    for node in source.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield Finding(source.path, node.lineno, "prints; return the text or a finding instead")


def long_files(source: Source) -> Iterator[Finding]:
    """A file can be read in one sitting."""
    lines = len(source.text.splitlines())
    if lines > MAX_LINES:
        yield Finding(source.path, lines, f"{lines} lines; allowed: {MAX_LINES}; split it")


RULES = (compilers_outside_jit, options_that_change_bits, parallel_loops, layers, prints, long_files)


# The rules over the project


def sources() -> list[Source]:
    files = (path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py")))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in files]


def test_the_sources_are_found():
    assert {source.package for source in sources()} >= {"emulator", "ops"}
    assert JIT_FILE in {source.path for source in sources()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_keeps_the_rule(rule):
    findings = [finding for source in sources() for finding in rule(source)]
    assert not findings, "\n" + "\n".join(f"{f.path}:{f.line}: {f.text}" for f in findings)


def test_folders_outside_the_cache_key_compile_nothing():
    """emulator.jit leaves these folders out of the key of the compiled code, so no kernel may come from them."""
    outside = [s for s in sources() if s.path.startswith(UNCOMPILED)]
    assert {f"{Path(s.path).parent}/" for s in outside} >= set(UNCOMPILED)
    compiled = [s for s in sources() if any((module, name) in COMPILING for _, module, name in imports(s))]
    assert compiled and not set(outside) & set(compiled)
    for source in compiled:
        assert not [m for _, m, _ in imports(source) if f"{m.replace('.', '/')}/".startswith(UNCOMPILED)], source.path


def test_exceptions_have_a_file_and_a_reason():
    for path, reason in PARALLEL_ALLOWED.items():
        assert (ROOT / path).is_file(), path
        assert reason, path


# The rules over snippets: (rule, path, text, line of the finding)

BAD = [
    (compilers_outside_jit, "ops/a.py", "from numba import njit", 1),
    (compilers_outside_jit, "viz/a.py", "from numba import types, guvectorize as g", 1),
    (compilers_outside_jit, "emulator/a.py", "from numba.core.decorators import jit", 1),
    (compilers_outside_jit, "ops/a.py", "from numba import *", 1),
    (compilers_outside_jit, "ops/a.py", "import numba\n@numba.njit\ndef f(): pass", 2),
    (compilers_outside_jit, "ops/a.py", "import numba as nb\nf = nb.vectorize(['f4(f4)'])(abs)", 2),
    (compilers_outside_jit, "ops/a.py", "import numba.core.decorators\nnumba.core.decorators.jit(abs)", 2),
    (options_that_change_bits, "ops/a.py", "f = njit(fastmath=True)(g)", 1),
    (options_that_change_bits, JIT_FILE, "numba.njit(fastmath={'reassoc'})", 1),
    (options_that_change_bits, "ops/a.py", "OPTIONS = {\n 'fastmath': True}", 2),
    (options_that_change_bits, "ops/a.py", "f = njit(error_model='numpy')(g)", 1),
    (options_that_change_bits, "ops/a.py", "OPTIONS = dict(error_model='numpy')", 1),
    (parallel_loops, "ops/a.py", "from numba import prange", 1),
    (parallel_loops, "ops/a.py", "import numba\nfor i in numba.prange(9): s += x[i]", 2),
    (parallel_loops, "studies/a.py", "f = njit(parallel=True)(g)", 1),
    (layers, "emulator/isa/a.py", "import ops", 1),
    (layers, "emulator/a.py", "def f():\n    from studies.ledger import g", 2),
    (layers, "emulator/a.py", "import numpy, viz.cli", 1),
    (layers, "ops/a.py", "from studies import ledger", 1),
    (layers, "ops/a.py", "import viz.cli as cli", 1),
    (layers, "studies/a.py", "from viz.figures import draw", 1),
    (prints, "emulator/a.py", "def f():\n    print('x')", 2),
    (prints, "ops/a.py", "print('x')", 1),
    (prints, "studies/a.py", "print()", 1),
    (long_files, "viz/a.py", "x = 1\n" * (MAX_LINES + 1), MAX_LINES + 1),
]

GOOD = [
    (compilers_outside_jit, JIT_FILE, "import numba\nf = numba.njit(g)"),
    (compilers_outside_jit, "ops/a.py", "from emulator.jit import njit\n@njit\ndef f(): pass"),
    (compilers_outside_jit, "ops/a.py", "import numba\nx = numba.typed.List\ny = other.jit"),
    (options_that_change_bits, JIT_FILE, "numba.njit(fastmath=False, error_model='python')"),
    (options_that_change_bits, "ops/a.py", "'''fastmath=True and error_model are forbidden'''"),
    (
        parallel_loops,
        "ops/a.py",
        "'''no prange'''\nf = njit(nogil=True, parallel=False)(g)\nsweep(parallel=4)",
    ),
    (
        layers,
        "emulator/a.py",
        "import numpy, emulator.events\nfrom . import ops\nfrom .viz import x\nops = 1",
    ),
    (layers, "ops/a.py", "from emulator import products\nfrom ops.operands import load"),
    (layers, "studies/a.py", "import ops, emulator"),
    (layers, "viz/a.py", "import viz.cli, studies, ops, emulator"),
    (prints, "viz/a.py", "print('x')"),
    (prints, "ops/a.py", "'''print(x)'''\nconsole.print('x')\nprint_it('x')"),
    (long_files, "viz/a.py", "x = 1\n" * MAX_LINES),
]


@pytest.mark.parametrize(("rule", "path", "text", "line"), BAD)
def test_rule_finds_the_bad_line(rule, path, text, line):
    assert [(finding.path, finding.line) for finding in rule(Source(path, text))] == [(path, line)]


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_rule_accepts_what_is_allowed(rule, path, text):
    assert list(rule(Source(path, text))) == []


def test_every_rule_has_a_bad_snippet():
    assert {rule for rule, *_ in BAD} == set(RULES)
    assert {rule for rule, *_ in GOOD} == set(RULES)
