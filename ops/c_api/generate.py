"""C source of the shared library, made from the headers with cffi."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from cffi import FFI
from cffi.recompiler import make_c_source

from ops.c_api.prototypes import HEADERS, Function, in_python, type_declarations

MODULE = "aicore_c_api"
"""Name of the module that cffi makes inside the interpreter."""

START = Path(__file__).resolve().parent / "src" / "start.c"

INIT_CODE = f"""
from {MODULE} import ffi, lib
try:
    from ops.c_api import bridge
    bridge.connect(ffi, lib)
except BaseException as error:
    lib.aicore_fail(f"{{type(error).__name__}}: {{error}}".encode()[:4000])
"""
"""What the library runs once in the interpreter. A failure is kept for aclGetRecentErrMsg."""

INTERNAL = """
extern "Python" int aicore_py_ready(void);
extern "Python" size_t aicore_py_message(char *text, size_t size);
void aicore_fail(const char *text);
void aicore_note(const char *text);
int64_t *aicore_new_int64(uint64_t count);
"""
"""Between the C and the Python side only; ``src/start.c`` uses them."""


def _failed(function: Function) -> str:
    """What the function returns when there is no interpreter."""
    if function.returns_status:
        return "ACL_ERROR_RT_INTERNAL_ERROR" if function.result == "aclError" else "ACLNN_ERR_INNER"
    return "NULL" if "*" in function.result else "0"


def _space(ctype: str) -> str:
    return ctype if ctype.endswith("*") else f"{ctype} "


def _wrapper(function: Function) -> str:
    names = ", ".join(p.name for p in function.parameters)
    return (
        f"{_space(function.result)}{function.name}({function.arguments})\n{{\n"
        f"    return aicore_start() ? py_{function.name}({names}) : {_failed(function)};\n}}\n"
    )


def c_source(python: str, paths: list[str]) -> str:
    """The whole C file.

    python: path of the interpreter to start, that of a venv included. paths: folders that ``sys.path`` gets when
    they are not on it: the first one at its beginning, for it holds this package, the others at its end.
    """
    ffi = FFI()
    answered = in_python()
    externs = "".join(f'extern "Python" {_space(f.result)}py_{f.name}({f.arguments});\n' for f in answered)
    ffi.cdef(type_declarations() + "\n" + INTERNAL + externs)
    ffi.embedding_api("")
    ffi.embedding_init_code(INIT_CODE)
    # One expression: the host program may be Python itself, and its __main__ is to stay as it is.
    search = (
        "(lambda path, first, rest: path.__setitem__(slice(None), [p for p in first if p not in path] + path"
        f" + [p for p in rest if p not in path]))(__import__('sys').path, {paths[:1]!r}, {paths[1:]!r})"
    )
    preamble = "\n".join(
        [
            *(f'#include "{header}"' for header in HEADERS),
            f"#define AICORE_PYTHON {json.dumps(python, ensure_ascii=False)}",
            f"#define AICORE_SEARCH {json.dumps(search, ensure_ascii=False)}",
            START.read_text(encoding="utf-8"),
            *(f"static {_space(f.result)}py_{f.name}({f.arguments});" for f in answered),
            *(_wrapper(f) for f in answered),
        ]
    )
    ffi.set_source(MODULE, preamble)
    with tempfile.TemporaryDirectory(prefix="aicore-c-") as folder:
        path = Path(folder) / "library.c"
        make_c_source(ffi, MODULE, preamble, str(path))
        return path.read_text(encoding="utf-8")
