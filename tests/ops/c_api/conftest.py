"""Building and running C programs against the emulator's library."""

import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ops.c_api.library import BuildError, Installation, build, c_compiler, compile_and_link_flags, cxx_compiler

WARNINGS = ("-Wall", "-Wextra", "-Werror")
RUN_SECONDS = 600

Compile = Callable[..., Path]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def compilers() -> tuple[list[str], list[str]]:
    """The C and the C++ compiler; without them nothing here can run."""
    try:
        return c_compiler(), cxx_compiler()
    except BuildError as error:
        pytest.skip(f"needs a C and a C++ compiler: {error}")


@pytest.fixture(scope="session")
def built(compilers) -> Installation:
    return build()


@pytest.fixture(scope="session")
def compile_program(compilers, built, tmp_path_factory) -> Compile:
    """Compile a source file, once, with the flags a user gets; the path of the program."""

    @cache
    def compile_(source: Path, *options: str, library: Installation = built) -> Path:
        program = tmp_path_factory.mktemp("program") / source.stem
        compiler = compilers[0] if source.suffix == ".c" else compilers[1]
        flags = compile_and_link_flags(library)
        command = [*compiler, *WARNINGS, *options, str(source), *flags, "-pthread", "-lm", "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    return compile_


def clean_environment(**changes: str) -> dict[str, str]:
    """An environment that says nothing of a venv, so that the library has to find its own way."""
    kept = {k: v for k, v in os.environ.items() if k in ("HOME", "TMPDIR", "AICORE_CACHE_DIR", "NUMBA_DISABLE_JIT")}
    return {**kept, "PATH": "/nowhere", "LC_ALL": "C", **changes}


@pytest.fixture
def run_program() -> Run:
    """Run a program in a clean environment, changed by keywords."""

    def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), *arguments],
            capture_output=True,
            text=True,
            env=clean_environment(**environment),
            timeout=RUN_SECONDS,
        )

    return run
