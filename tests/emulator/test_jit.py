"""Compiling: cache keys, line numbers, what may run on a core, and two processes on one cold cache."""

import importlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import numpy as np
import pytest

from emulator import GlobalMemory, jit, kernel, launch, products
from emulator.core import Core, GlobalTensor
from emulator.isa import data_copy_out, duplicate, init_buffer
from emulator.jit import aicore, mark_lines

ROOT = Path(jit.PACKAGE_ROOT)
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


@pytest.fixture
def fresh():
    """`sources_digest` and `cache_dir` remember their answers; start and leave without them."""
    jit.sources_digest.cache_clear(), jit.cache_dir.cache_clear()
    yield
    jit.sources_digest.cache_clear(), jit.cache_dir.cache_clear()


@pytest.fixture
def copied(tmp_path, monkeypatch, fresh):
    """A copy of the compiled packages' sources that the digests are taken of."""
    for package in jit.LAYERS:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    monkeypatch.setattr(jit, "PACKAGE_ROOT", tmp_path)
    return tmp_path


def digests() -> dict[str, str]:
    jit.sources_digest.cache_clear()
    return {layer: jit.sources_digest(layer) for layer in jit.LAYERS}


def changed(before: dict[str, str]) -> set[str]:
    after = digests()
    return {layer for layer in jit.LAYERS if after[layer] != before[layer]}


# ---- the cache key


@pytest.mark.parametrize(
    ("path", "stale"),
    [
        ("emulator/isa/reduce.py", {"emulator", "ops", "studies"}),
        ("ops/reduce_sum/kernel.py", {"ops", "studies"}),
        ("studies/__init__.py", {"studies"}),
    ],
)
def test_a_change_makes_its_layer_and_those_above_stale(copied, path, stale):
    before = digests()
    assert changed(before) == set() and len(set(before.values())) == len(jit.LAYERS)
    assert all(len(d) == 20 and int(d, 16) >= 0 for d in before.values())
    text = (copied / path).read_bytes()
    (copied / path).write_bytes(text + b"\n")
    assert changed(before) == stale
    (copied / path).write_bytes(text)
    assert changed(before) == set()


def test_new_and_renamed_files_make_it_stale(copied):
    before = digests()
    (copied / "ops" / "another.py").write_text("")
    assert changed(before) == {"ops", "studies"}
    added = digests()
    (copied / "ops" / "another.py").rename(copied / "ops" / "renamed.py")
    assert changed(added) == changed(before) == {"ops", "studies"}
    (copied / "ops" / "renamed.py").unlink()
    (copied / "ops" / "notes.txt").write_text("not a source")
    assert changed(before) == set()


def test_another_numba_makes_it_stale(copied, monkeypatch):
    before = digests()
    monkeypatch.setattr(numba, "__version__", "0.0.1")
    assert changed(before) == set(jit.LAYERS)


def test_the_cache_folder_is_where_it_is_told(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    folders = {layer: jit.cache_dir(layer) for layer in jit.LAYERS}
    for layer, folder in folders.items():
        path = Path(folder)
        assert path.parent == tmp_path / "deep" / "cache" / "jit" and jit.sources_digest(layer) in path.name
        assert path.is_dir() and not list(path.iterdir())
    assert len(set(folders.values())) == len(folders)


def test_no_cache_where_nothing_can_be_written(tmp_path, monkeypatch, fresh):
    """Root may write into any folder, but no one below a file."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert [jit.cache_dir(layer) for layer in jit.LAYERS] == [None] * len(jit.LAYERS)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_compiled_code_runs_where_nothing_can_be_cached(tmp_path):
    """A kernel is compiled all the same; nothing is written."""
    (tmp_path / "file").write_text("")
    assert outputs([spawn(TINY, tmp_path / "file" / "cache", cwd=tmp_path)], 300)[0].strip()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_code_from_elsewhere_is_not_cached(tmp_path, monkeypatch):
    file = tmp_path / "elsewhere.py"
    file.write_text("from emulator.jit import njit\n\n@njit\ndef twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = numba.config.CACHE_DIR
    elsewhere = importlib.import_module("elsewhere")
    assert elsewhere.twice(4) == 8 and before == numba.config.CACHE_DIR
    assert [p.name for p in tmp_path.iterdir() if p.name != "__pycache__"] == ["elsewhere.py"]
    assert not list(tmp_path.rglob("*.nbi"))


# ---- the source line of every instruction


@kernel(buffers=("a",), writes=("out",))
def spread(core: Core, out: GlobalTensor) -> None:
    a = init_buffer(core, 32)  # line 1
    for value in (1.0,
                  2.0):  # fmt: skip
        duplicate(  # line 2
            core,
            a,
            value,
            8,
        )
    # a comment, an empty line, and a call within an expression over two lines:

    data_copy_out(core, out,  # line 3
                  0, a, 8)  # fmt: skip


@pytest.mark.jitless
def test_lines_are_those_of_the_file():
    memory = GlobalMemory()
    run = launch(spread, 1, memory.alloc("out", 8), product=products.get("950"), events=True)
    lines = [next(n for n, text in enumerate(SOURCE, 1) if text.endswith(f"# line {i}")) for i in (1, 2, 3)]
    assert run.events["line"].tolist() == [lines[0], lines[1], lines[1], lines[2]]


def plain(core, a, b):
    """A text."""
    duplicate(core, a, 1.0, 8)
    return init_buffer(core, b)


def test_mark_lines_keeps_the_function():
    marked = mark_lines(plain)
    assert (marked.__name__, marked.__doc__, marked.__module__) == ("plain", "A text.", plain.__module__)
    assert marked.__code__.co_filename == plain.__code__.co_filename
    assert {plain.__code__.co_firstlineno + 2, plain.__code__.co_firstlineno + 3} <= set(marked.__code__.co_consts)


def test_a_core_runs_module_level_functions_only():
    outer = 3

    def closure(core):
        return outer

    with pytest.raises(TypeError, match="closure must be a plain module-level function"):
        mark_lines(closure)
    with pytest.raises(TypeError, match="closure must be a plain module-level function"):
        aicore(closure)
    with pytest.raises((TypeError, SyntaxError)):
        mark_lines(lambda core: core)


def test_constants_do_not_compile_anew():
    """A caller passes constants as plain integers, so one compiled form serves every opcode and line."""

    @jit.njit
    def callee(x):
        return x + 1

    @jit.njit
    def caller():
        return callee(1) + callee(2) + callee(3)

    assert caller() == 9
    if not numba.config.DISABLE_JIT:
        assert len(callee.signatures) == 1


def test_no_fastmath():
    """x - x + tiny sums keep their order; a reassociating compiler would give 1."""

    @jit.njit
    def sum_up(values):
        total = np.float32(0)
        for v in values:
            total += v
        return total

    assert sum_up(np.array([2**24, 1, -(2**24)], np.float32)) == 0


# ---- processes that share a cold cache


TINY = """
    import numpy as np
    from emulator.events import record
    from emulator import formats
    print(formats.cast(np.arange(5, dtype=np.float32) / 3, "float16").tobytes().hex())
"""


def spawn(code: str, cache: Path, cwd: Path | None = None) -> subprocess.Popen:
    env = {**os.environ, "AICORE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=env,
        cwd=cwd or cache.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outputs(processes: list[subprocess.Popen], timeout: int) -> list[str]:
    results = [p.communicate(timeout=timeout) for p in processes]
    for process, (_, err) in zip(processes, results, strict=True):
        assert process.returncode == 0, err[-2000:]
    return [out for out, _ in results]


@pytest.mark.slow
def test_two_processes_on_a_cold_cache_both_finish(tmp_path):
    cold = outputs([spawn(TINY, tmp_path / "cache") for _ in range(2)], 300)
    warm = outputs([spawn(TINY, tmp_path / "cache")], 300)
    assert len(set(cold + warm)) == 1 and cold[0].strip()
    assert list((tmp_path / "cache").rglob("*.nbi"))


@pytest.mark.slow
def test_two_processes_run_the_operator_on_a_cold_cache(tmp_path):
    code = """
        import numpy as np, ops
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        one = np.ones(2, np.float32)
        r = ops.batch_norm_reduce_backward(x, x, one, one)
        print(r.sum_dy.tolist(), r.grad_weight.tolist())
    """
    cold = outputs([spawn(code, tmp_path / "cache") for _ in range(2)], 600)
    assert cold == ["[12.0, 16.0] [44.0, 68.0]\n"] * 2
