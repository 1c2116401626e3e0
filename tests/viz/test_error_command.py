"""aicore error and aicore reveal."""

import json
from fractions import Fraction

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from emulator.errors import EmulatorError
from viz.error_commands import register

FIGURES = {"waterfall", "channels", "error_map", "levels", "histogram", "cancellation", "growth", "summary"}


def call(*arguments):
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("dump") / "small.npz"
    wide = {k: rng.standard_normal((8, 3, 10)) for k in ("grad_out", "input")}
    narrow = {k: v.astype(np.float16) for k, v in wide.items()}
    np.savez(path, **narrow, mean=np.zeros(3, np.float32), invstd=np.ones(3, np.float32))
    np.savez(path.with_name("master.npz"), **wide)
    return path


def test_prints_the_ledger_and_writes_every_figure(dump, tmp_path):
    result = call("error", dump, "--out", tmp_path / "figures", "--master", dump.with_name("master.npz"))
    assert result.exit_code == 0, result.output
    assert "residual over all channels: 0 exactly, as rational numbers" in result.output
    assert "fidelity: source" in result.output and "contract cann" in result.output and "quantise x" in result.output
    assert {p.stem for p in (tmp_path / "figures").iterdir()} == FIGURES
    assert all(p.stat().st_size > 10_000 for p in (tmp_path / "figures").iterdir())


@pytest.mark.parametrize("algorithm", ["cann", "exact", "torch_cuda"])
def test_json_has_everything_exactly(dump, algorithm):
    result = call("error", dump, "--json", "--algorithm", algorithm)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout, parse_constant=lambda c: pytest.fail(c))
    ledger = record["ledger"]
    assert ledger["residual_is_zero"] and ledger["algorithm"] == algorithm
    for one in ledger["outputs"].values():
        for c, hexed in enumerate(one["delivered"]):
            parts = sum(Fraction(v[c]) for v in one["contributions"].values())
            assert Fraction(float.fromhex(hexed)) - Fraction(one["exact"][c]) == parts
    assert {"verdicts", "metrics", "cancellation", "growth"} <= set(record)


def test_figures_state_what_they_show(dump):
    import ops
    from studies.accuracy import cancellation_study, growth_study
    from studies.attribution import error_ledger
    from studies.error_study import error_study
    from viz.error_figures import figures

    o = ops.load(dump)
    data = o.grad_out, o.input, o.mean, o.invstd
    sweeps = cancellation_study(count=100, channels=2, ratios=(0, 10)), growth_study(sizes=(100, 1000), trials=2)
    made = figures(error_ledger(*data), error_study(*data), *sweeps)
    for name, figure in made.items():
        heading = " ".join(t.get_text() for t in figure.texts)
        assert "Ascend950PR_9589" in heading and "fidelity" in heading and "contract" in heading, name
        assert "float16" in heading or "float32" in heading, name


def test_bad_input_is_one_clear_line(dump, tmp_path):
    for arguments, text in (
        (("error", dump, "--algorithm", "kahan"), "--algorithm: got 'kahan'"),
        (("error", dump, "--output", "y"), "--output: got 'y'"),
        (("error", dump, "--channel", "9"), "--channel: got 9; allowed: 0 to 2"),
        (("error", tmp_path / "none.npz"), "no such file"),
        (("error", dump, "--master", tmp_path / "none.npz"), "--master: got"),
        (("reveal", "torch"), "WHAT: got 'torch'"),
        (("reveal", "--shape", "8"), "--shape: got '8'"),
    ):
        error = call(*arguments).exception
        assert isinstance(error, EmulatorError) and text in str(error) and "\n" not in str(error)


def test_reveal_prints_draws_and_compares(tmp_path):
    result = call(
        "reveal", "--shape", "2x8", "--channels", "8", "--against", "sequential", "--figure", tmp_path / "t.png"
    )
    assert result.exit_code == 0, result.output
    assert "comparison: first difference" in result.output and (tmp_path / "t.png").stat().st_size > 10_000
    record = json.loads(call("reveal", "numpy", "--shape", "1x9", "--json").stdout)
    assert record["leaves"] == 9 and record["expression"].endswith("+ x8")
