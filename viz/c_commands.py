"""The commands that build the C library and run C and C++ host programs with it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ops.c_api.library import BuildError, build, c_compiler, compile_and_link_flags, cxx_compiler

BAD_INPUT = 2
C_SUFFIXES = (".c",)
CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".C", ".c++")


class _Stop(Exception):
    """A one-line message for stderr; the command ends with 2."""


def _fail(message: object) -> typer.Exit:
    typer.echo(f"aicore: {message}", err=True)
    return typer.Exit(BAD_INPUT)


def c_build(
    out: Annotated[Path | None, typer.Option(help="Folder to fill; by default the user's cache folder.")] = None,
) -> None:
    """Build the C library: headers and libascendcl, libopapi, libnnopbase for host programs in C and C++."""
    try:
        built = build(out)
    except BuildError as error:
        raise _fail(error) from None
    typer.echo(str(built.root))


def c_flags() -> None:
    """Print what to pass to the compiler: g++ host.cpp $(aicore c-flags) -o host."""
    try:
        typer.echo(shlex.join(compile_and_link_flags(build())))
    except BuildError as error:
        raise _fail(error) from None


def c_run(
    source: Annotated[Path, typer.Argument(help="A .c or .cpp file with a main function.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the program.")] = None,
) -> None:
    """Compile a C or C++ host program, run it on the emulator and end with its exit status.

    CXX, CXXFLAGS, CC and CFLAGS choose the compiler and its options; AICORE_PRODUCT, AICORE_ENGINE and AICORE_EVENTS
    steer the emulator.
    """
    try:
        status = run(source, arguments or [])
    except (BuildError, _Stop) as error:
        raise _fail(error) from None
    raise typer.Exit(status)


def _compile_command(source: Path) -> list[str]:
    if not source.is_file():
        raise _Stop(f"{source}: no such file; name a .c or .cpp file")
    if source.suffix in C_SUFFIXES:
        return [*c_compiler(), *os.environ.get("CFLAGS", "").split()]
    if source.suffix in CXX_SUFFIXES:
        return [*cxx_compiler(), *os.environ.get("CXXFLAGS", "").split()]
    raise _Stop(f"{source}: got a file ending in {source.suffix!r}; allowed: .c, .cpp, .cc, .cxx")


def run(source: Path, arguments: list[str]) -> int:
    """Compile in a temporary folder, run with the caller's stdin, stdout and stderr; the program's exit status.

    128 + the signal's number for a program that a signal ended, as shells say it.
    """
    command = _compile_command(source)
    flags = compile_and_link_flags(build())
    with tempfile.TemporaryDirectory(prefix="aicore-c-run-") as folder:
        program = Path(folder) / source.stem
        compiled = subprocess.run([*command, str(source), *flags, "-pthread", "-lm", "-o", str(program)])
        if compiled.returncode:
            raise _Stop(
                f"{source}: {command[0]} cannot compile it (status {compiled.returncode}); see its messages above"
            )
        status = subprocess.run([str(program), *arguments]).returncode
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        typer.echo(f"aicore: {source}: ended by {name}", err=True)
        return 128 - status
    return status


def register(app: typer.Typer) -> None:
    """Add the three commands to ``app``."""
    app.command("c-build")(c_build)
    app.command("c-flags")(c_flags)
    # Everything behind the file's name belongs to the program, options included.
    app.command("c-run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(c_run)
