"""Compiles the shared library with the system's compiler and lays it out as an SDK is: ``include`` and ``lib64``.

The result is kept in the user's cache folder, under a digest of everything it was made from. It is made in a
folder of its own and renamed into place, so that two processes can build at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cffi

from emulator.errors import EmulatorError
from emulator.jit import PACKAGE_ROOT, cache_dir
from ops.c_api.generate import START, c_source
from ops.c_api.prototypes import HEADERS, INCLUDE

LIBRARY = "libascendcl.so"
ALIASES = ("libopapi.so", "libnnopbase.so", "libopapi_nn.so", "libopapi_math.so", "libacl_rt.so")
"""Other names that programs link; all of them are the one library."""

LINKED = ("ascendcl", "opapi", "nnopbase")
COMPILE_SECONDS = 300
"""A compiler that takes longer is given up."""


class BuildError(EmulatorError):
    """The library cannot be built here."""


@dataclass(frozen=True, kw_only=True)
class LibPython:
    """What a program that holds an interpreter is linked with."""

    library_flags: tuple[str, ...]
    """For the library."""
    program_flags: tuple[str, ...]
    """For every program, when Python only comes as an archive: it has to be a part of the program then."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A built library."""

    root: Path
    libpython: LibPython

    @property
    def include(self) -> Path:
        """Folder of the headers."""
        return self.root / "include"

    @property
    def library_folder(self) -> Path:
        """Folder of the libraries."""
        return self.root / "lib64"


def c_compiler() -> list[str]:
    """The C compiler as a command: CC, or the first of cc, gcc, clang. Raises BuildError."""
    return _compiler("CC", ("cc", "gcc", "clang"))


def cxx_compiler() -> list[str]:
    """The C++ compiler as a command: CXX, or the first of c++, g++, clang++. Raises BuildError."""
    return _compiler("CXX", ("c++", "g++", "clang++"))


def _compiler(variable: str, names: tuple[str, ...]) -> list[str]:
    given = os.environ.get(variable, "").split()
    if given:
        if shutil.which(given[0]) is None:
            raise BuildError(f"{variable}: got {given[0]!r}, which is no program; name a compiler or unset {variable}")
        return given
    for name in names:
        if shutil.which(name):
            return [name]
    raise BuildError(f"compiler: found none of {', '.join(names)}; install gcc and g++, or set {variable}")


def find_libpython(folders: tuple[Path, ...] | None = None) -> LibPython:
    """How to link the running interpreter. ``folders`` are searched instead of the usual ones. Raises BuildError."""
    config = sysconfig.get_config_vars()
    version = str(config.get("LDVERSION") or sysconfig.get_python_version())
    if folders is None:
        named = (config.get("LIBDIR"), config.get("LIBPL"), os.path.join(sys.base_prefix, "lib"))
        folders = tuple(dict.fromkeys(Path(str(f)) for f in named if f))
    for folder in folders:
        if (folder / f"libpython{version}.so").exists():
            flags = (f"-L{folder}", f"-lpython{version}", f"-Wl,-rpath,{folder}")
            return LibPython(library_flags=flags, program_flags=())
    for folder in folders:
        archive = folder / f"libpython{version}.a"
        if archive.exists():
            system = " ".join(str(config.get(name) or "") for name in ("LIBS", "SYSLIBS")).split()
            whole = ("-Wl,--export-dynamic", "-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive")
            return LibPython(library_flags=(), program_flags=(*whole, *system, "-lm", "-ldl", "-pthread"))
    raise BuildError(
        f"libpython{version}: found neither .so nor .a in {', '.join(map(str, folders))}; "
        f"install it (python3-dev), or a Python built with --enable-shared"
    )


def _python_header_folder() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        raise BuildError(f"Python.h: not in {folder}; install the headers of this Python (python3-dev)")
    return folder


def _search_paths() -> list[str]:
    """Folders the library must find: this package's, and those of what it depends on."""
    packages = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages") and Path(p).is_dir()]
    return [str(PACKAGE_ROOT), *(p for p in packages if Path(p) != PACKAGE_ROOT)]


def _compile(source: str, target: Path, libpython: LibPython) -> None:
    command = [
        *c_compiler(), "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden",
        '-DACL_FUNC_VISIBILITY=__attribute__((visibility("default")))',
        f"-DAICORE_USER_SITE={int(bool(site.ENABLE_USER_SITE))}",
        f"-I{INCLUDE}", f"-I{_python_header_folder()}", "-x", "c", "-", "-o", str(target),
        f"-Wl,-soname,{LIBRARY}", *libpython.library_flags, "-ldl",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, input=source, capture_output=True, encoding="utf-8", errors="replace", timeout=COMPILE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]}: not done after {COMPILE_SECONDS} s; try again") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise BuildError(f"{command[0]}: cannot compile the library: {lines[0] if lines else 'no message'}")


def _lay_out(root: Path, libpython: LibPython) -> None:
    """Fill ``root``; a file that is already there is replaced in one step."""
    libraries = root / "lib64"
    libraries.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=libraries) as name:
        folder = Path(name)
        _compile(c_source(sys.executable, _search_paths()), folder / LIBRARY, libpython)
        os.replace(folder / LIBRARY, libraries / LIBRARY)
        for alias in ALIASES:
            os.symlink(LIBRARY, folder / alias)
            os.replace(folder / alias, libraries / alias)
        for header in HEADERS:
            target = root / "include" / header
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(INCLUDE / header, folder / "header")
            os.replace(folder / "header", target)


def _key(libpython: LibPython) -> str:
    """Digest of everything the library is made from."""
    sources = [START, Path(__file__), *(Path(__file__).parent.glob("*.py")), *(INCLUDE / h for h in HEADERS)]
    parts = [
        sys.executable, *_search_paths(), sys.version, cffi.__version__, str(libpython), *c_compiler(),
        str(bool(site.ENABLE_USER_SITE)), *(path.read_text(encoding="utf-8") for path in sorted(set(sources))),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def build(out: Path | None = None) -> Installation:
    """Build the library into ``out``, or find or build it in the user's cache folder.

    Raises BuildError when there is no compiler, no Python headers, no libpython, or no folder to write to.
    """
    libpython = find_libpython()
    try:
        if out is not None:
            root = out.resolve()
            _lay_out(root, libpython)
            return Installation(root=root, libpython=libpython)
        cache = cache_dir("emulator")
        if cache is None:
            raise BuildError("cache folder: cannot be written; set AICORE_CACHE_DIR, or name a folder with --out")
        root = Path(cache).parents[1] / "c_api" / _key(libpython)
        if not (root / "lib64" / LIBRARY).exists():
            _build_aside(root, libpython)
        return Installation(root=root, libpython=libpython)
    except OSError as error:
        raise BuildError(f"{out or 'cache folder'}: {error.strerror}: {error.filename}") from None


def _build_aside(root: Path, libpython: LibPython) -> None:
    """Build in a folder beside ``root`` and rename it; the first of two processes that do so wins."""
    root.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{root.name}-", dir=root.parent))
    try:
        _lay_out(aside, libpython)
        aside.chmod(0o755)
        try:
            aside.rename(root)
        except OSError:
            if not (root / "lib64" / LIBRARY).exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def compile_and_link_flags(built: Installation) -> list[str]:
    """What to pass to the compiler, before or after the sources."""
    include, libraries = built.include, built.library_folder
    return [
        f"-I{include}", f"-I{include / 'aclnn'}", f"-I{include / 'aclnnop'}", f"-L{libraries}", "-Wl,--no-as-needed",
        *(f"-l{name}" for name in LINKED), f"-Wl,-rpath,{libraries}", *built.libpython.program_flags,
    ]  # fmt: skip
