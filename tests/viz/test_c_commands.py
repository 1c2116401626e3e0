"""aicore c-build, c-flags and c-run, in a small application of their own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ops.c_api.library import ALIASES, LIBRARY, BuildError, c_compiler, cxx_compiler

ROOT = Path(__file__).resolve().parents[2]
APP = "import typer; from viz.c_commands import register; app = typer.Typer(); register(app); app(prog_name='aicore')"
SECONDS = 300
BARE = {name: os.environ[name] for name in ("HOME", "AICORE_CACHE_DIR") if name in os.environ}
"""An environment that knows of no venv."""


def aicore(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", APP, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=SECONDS,
    )


@pytest.fixture(scope="module")
def compilers():
    try:
        return c_compiler(), cxx_compiler()
    except BuildError as error:
        pytest.skip(f"needs a C and a C++ compiler: {error}")


def test_c_build_lays_out_an_sdk(compilers, tmp_path):
    sdk = tmp_path / "sdk"
    for _ in range(2):  # the second time over the first
        done = aicore("c-build", "--out", str(sdk))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{sdk}\n", "")
    assert sorted(p.name for p in (sdk / "lib64").iterdir()) == sorted((LIBRARY, *ALIASES))
    assert (sdk / "include" / "acl" / "acl.h").is_file()
    program = tmp_path / "host"
    source = tmp_path / "host.cpp"
    source.write_text('#include "acl/acl.h"\nint main() { return aclInit(nullptr) || aclFinalize(); }\n')
    # As the vendor's own build line has it.
    libraries = ["-lopapi_nn", "-lopapi_math", "-lascendcl", "-lnnopbase"]
    search = [f"-I{sdk}/include", f"-I{sdk}/include/aclnn", f"-L{sdk}/lib64"]
    subprocess.run([*compilers[1], str(source), *search, *libraries, "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True, env={**BARE, "LD_LIBRARY_PATH": f"{sdk}/lib64"}, timeout=SECONDS)


def test_c_flags_are_all_a_compiler_needs(compilers, tmp_path):
    done = aicore("c-flags")
    assert (done.returncode, done.stderr) == (0, "")
    flags = shlex.split(done.stdout)
    source = tmp_path / "host.c"
    source.write_text('#include "acl/acl.h"\nint main(void) { return aclInit(NULL) || aclFinalize(); }\n')
    for order in ([str(source), *flags], [*flags, str(source)]):
        subprocess.run([*compilers[0], *order, "-o", str(tmp_path / "host")], check=True)
        subprocess.run([str(tmp_path / "host")], check=True, env=BARE, timeout=SECONDS)


def test_two_builds_at_once(compilers, tmp_path):
    command = [sys.executable, "-c", APP, "c-flags"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AICORE_CACHE_DIR": str(tmp_path)}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=SECONDS) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(set(outputs)) == 1
    assert outputs[0][1] == ""
    assert len(list((tmp_path / "c_api").iterdir())) == 1, "no left-overs of the builds that lost"


def test_c_run_passes_arguments_output_and_status(compilers, tmp_path):
    source = tmp_path / "host.cpp"
    source.write_text(
        '#include <cstdio>\n#include <cstdlib>\n#include "acl/acl.h"\n'
        "int main(int argc, char **argv) {\n"
        '    std::fprintf(stderr, "%s\\n", aclrtGetSocName());\n'
        '    for (int i = 1; i < argc; i++) std::printf("%s\\n", argv[i]);\n'
        "    return std::atoi(argv[1]);\n}\n"
    )
    done = aicore("c-run", str(source), "7", "--help", "-x", AICORE_PRODUCT="Ascend910B1", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (7, "7\n--help\n-x\n", "Ascend910B1\n")
    assert list(tmp_path.iterdir()) == [source], "the temporary folder is gone"


def test_c_run_takes_c(compilers, tmp_path):
    source = tmp_path / "host.c"
    source.write_text('#include "acl/acl.h"\nint main(void) { return aclInit(NULL); }\n')
    assert aicore("c-run", str(source), CFLAGS="-std=c11 -Wall -Werror").returncode == 0


def test_c_run_says_what_ended_the_program(compilers, tmp_path):
    source = tmp_path / "host.c"
    source.write_text("#include <stdlib.h>\nint main(void) { abort(); }\n")
    done = aicore("c-run", str(source))
    assert done.returncode == 128 + 6
    assert done.stderr == f"aicore: {source}: ended by SIGABRT\n"


def test_c_run_shows_the_compilers_messages(compilers, tmp_path):
    source = tmp_path / "host.cpp"
    source.write_text("int main() { return nothing; }\n")
    done = aicore("c-run", str(source))
    assert done.returncode == 2
    assert "nothing" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"aicore: {source}: ")


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (("c-run", "missing.cpp"), {}, "missing.cpp: no such file; name a .c or .cpp file"),
        (("c-run", "pyproject.toml"), {}, "got a file ending in '.toml'; allowed: .c, .cpp, .cc, .cxx"),
        (("c-flags",), {"CC": "no-such-compiler"}, "CC: got 'no-such-compiler', which is no program"),
        (("c-flags",), {"PATH": "/nowhere", "CC": ""}, "compiler: found none of cc, gcc, clang; install gcc and g++"),
        (("c-build", "--out", "/proc/sdk"), {}, "/proc/sdk: "),
    ],
)
def test_bad_input_is_one_line_and_status_2(compilers, arguments, environment, text):
    done = aicore(*arguments, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("aicore: ")
    assert text in done.stderr
