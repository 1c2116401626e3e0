"""C and C++ host programs, compiled as a user compiles them and run in an environment that knows of no venv."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ops.c_api.library import build

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
PROGRAMS = Path(__file__).resolve().parent / "programs"

RESULTS = [7, 8, 21, 30, 21, 30, 7, 8]
"""What the operator's published example prints."""


def printed(text: str) -> list[float]:
    lines = re.findall(r"^result\[\d+\] is: ([\d.]+)$", text, flags=re.MULTILINE)
    return [float(value) for value in lines]


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
def test_plain_program(compile_program, run_program, standard):
    done = run_program(compile_program(PROGRAMS / "plain.cpp", f"-std={standard}"))
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done.stdout) == RESULTS


@pytest.mark.parametrize("product", ["Ascend910A", "Ascend910B1"])
@pytest.mark.parametrize("engine", ["fast", "instruction"])
def test_product_and_engine_are_steered_from_outside(compile_program, run_program, product, engine):
    done = run_program(compile_program(PROGRAMS / "plain.cpp"), AICORE_PRODUCT=product, AICORE_ENGINE=engine)
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done.stdout) == RESULTS


def test_unknown_product_is_a_status(compile_program, run_program):
    done = run_program(compile_program(PROGRAMS / "plain.cpp"), AICORE_PRODUCT="Ascend42")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_events_are_written(compile_program, run_program, tmp_path):
    path = tmp_path / "events.npz"
    done = run_program(compile_program(PROGRAMS / "plain.cpp"), AICORE_EVENTS=str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert printed(done.stdout) == RESULTS
    with np.load(path) as events:
        assert events["shape"].tolist() == [4, 2]
        assert len(events["events_0"]) > 0


def test_the_environment_does_not_misdirect_the_interpreter(compile_program, run_program):
    """PYTHONHOME and PYTHONPATH may belong to another Python."""
    program = compile_program(PROGRAMS / "first_message.c")
    done = run_program(program, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere", VIRTUAL_ENV="/nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 no message\n", "")


def test_inside_a_python_process(built):
    """A Python that loads the library keeps being the only interpreter."""
    text = (
        "import ctypes, sys\n"
        "lib = ctypes.CDLL(sys.argv[1])\n"
        "names = set(globals())\n"
        "assert lib.aclInit(None) == 0 and lib.aclInit(None) == 100002\n"
        "assert set(globals()) == names | {'names'}, 'its __main__ is untouched'\n"
        "from ops import acl\n"
        "assert acl.aclInit(None) == 100002, 'the same runtime'\n"
        "lib.aclGetRecentErrMsg.restype = ctypes.c_char_p\n"
        "assert b'aclInit' in lib.aclGetRecentErrMsg()\n"
    )
    library = built.library_folder / "libopapi.so"
    command = [sys.executable, "-W", "error", "-c", text, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")


def test_statuses_and_messages_reach_c(compile_program, run_program):
    done = run_program(compile_program(PROGRAMS / "statuses.c", "-std=c11"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")


def test_fp16_example(compile_program, run_program):
    done = run_program(compile_program(EXAMPLES / "batch_norm_reduce_backward_fp16.cpp"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all results are right\n")


def test_fp16_example_finds_a_wrong_result(compile_program, run_program, tmp_path):
    """With the strides of a contiguous view, the example must end with 1."""
    text = (EXAMPLES / "batch_norm_reduce_backward_fp16.cpp").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(
        text.replace("ACL_FLOAT16, full, transposed, channelsLast)", "ACL_FLOAT16, full, contiguous, full)")
    )
    assert wrong.read_text(encoding="utf-8") != text
    done = run_program(compile_program(wrong))
    assert done.returncode == 1
    assert "expected" in done.stderr


def test_fp16_example_in_python():
    example = EXAMPLES / "batch_norm_reduce_backward_fp16.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all results are right\n")


def test_threads_example(compile_program, run_program):
    done = run_program(compile_program(EXAMPLES / "threads.cpp"), "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "8 threads, 5 calls each, 0 failures\n"


def test_half_floats_in_c(compile_program, run_program):
    """All 65 536 halves there and back, and the published treatment of what does not fit."""
    done = run_program(compile_program(PROGRAMS / "halves.c", "-std=c11"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")


def test_a_missing_interpreter_is_a_status(compile_program, run_program, tmp_path, monkeypatch):
    """The venv the library was built for is gone: no crash, and the message says what to do."""
    gone = tmp_path / "gone" / "bin" / "python"
    monkeypatch.setattr("sys.executable", str(gone))
    library = build(tmp_path / "sdk")
    program = compile_program(PROGRAMS / "first_message.c", library=library)
    done = run_program(program)
    assert done.returncode == 0
    assert "507000" in done.stdout
    assert str(gone) in done.stdout
    assert "aicore c-build" in done.stdout


def test_a_broken_package_is_a_status(compile_program, run_program, tmp_path, monkeypatch):
    """ops cannot be imported: the reason is in the message."""
    package = tmp_path / "ops"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('half an installation')\n")
    monkeypatch.setattr("ops.c_api.library.PACKAGE_ROOT", tmp_path)
    library = build(tmp_path / "sdk")
    done = run_program(compile_program(PROGRAMS / "first_message.c", library=library))
    assert done.returncode == 0
    assert "507000" in done.stdout
    assert "half an installation" in done.stdout


@pytest.mark.slow
def test_ten_thousand_calls_do_not_grow(compile_program, run_program):
    """400 bytes left behind by each call would be 3 MiB; an allocator's arena, 1 MiB, may come once."""
    done = run_program(compile_program(PROGRAMS / "repeat.cpp", "-O1"), "10000")
    assert (done.returncode, done.stderr) == (0, "")
    warm_kib, end_kib = map(int, done.stdout.split())
    assert end_kib - warm_kib < 2048, done.stdout


@pytest.mark.slow
def test_eight_threads_many_calls(compile_program, run_program):
    done = run_program(compile_program(EXAMPLES / "threads.cpp"), "200")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "8 threads, 200 calls each, 0 failures\n"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["batch_norm_reduce_backward_fp16.cpp", "threads.cpp"])
def test_address_sanitizer(compile_program, run_program, source):
    """Heap and stack errors are on. Leaks are not looked for: the interpreter keeps its objects until the end."""
    program = compile_program(EXAMPLES / source, "-fsanitize=address", "-g", "-O1")
    done = run_program(
        program,
        ASAN_OPTIONS="detect_leaks=0:halt_on_error=1:alloc_dealloc_mismatch=1:detect_stack_use_after_return=1",
        PYTHONMALLOC="malloc",
    )
    assert done.returncode == 0, done.stderr
    assert "AddressSanitizer" not in done.stderr


@pytest.mark.slow
def test_address_sanitizer_finds_an_error_of_the_program(compile_program, run_program, tmp_path):
    """The sanitizer is really on: a read behind a device allocation's copy is reported."""
    text = (EXAMPLES / "batch_norm_reduce_backward_fp16.cpp").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(text.replace("got[c] = aclFloat16ToFloat(half[c]);", "got[c + 1] = aclFloat16ToFloat(half[c]);"))
    assert wrong.read_text(encoding="utf-8") != text
    done = run_program(compile_program(wrong, "-fsanitize=address", "-g"), ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
