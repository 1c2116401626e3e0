"""Reports and JSON of hand-made records, and the small parts they are made of."""

import io
import json
import math
from fractions import Fraction

import pytest
from rich.console import Console

from studies.summary import combine_work
from viz import records, report, tables
from viz.options import parse_changes, parse_count, parse_shape
from viz.progress import LateProgress


def printed(function, *args, width=120, **options):
    stream = io.StringIO()
    function(Console(file=stream, width=width, highlight=False, markup=False), *args, **options)
    return stream.getvalue()


def test_run_report_shows_every_part(run_summary):
    text = printed(
        report.print_run, run_summary, channels=2, cores=3, total_seconds=61.0, compile_seconds=60.0, width=130
    )
    flat = " ".join(text.split())
    for expected in (
        "Ascend910B1 (Atlas A2, NpuArch 2201, 5 vector cores, UB 196608 B, fidelity: model, what-if",
        "vector_cores 48 -> 5)",
        "closed kernel",
        "dump: [40, 6, 20] float16, 4,800 elements, 6 channels, loss_scale 1024.0",
        "some/dump.npz",
        "0.25 to 128.5 (largest in channel 4)",
        "instruction, algorithm cann, outputs float16",
        "Arrival order seed 7",
        "Note a note for the reader another one",
        "canonical [1, 40, 6, 20], pattern ARAR",
        "6 channels in 2 tiles of 3",
        "800 elements of each channel in 4 tiles of 10 batch rows (200 elements)",
        "4 of 5 used; 1,200 elements of an operand for each, at most 1 A tile by 2 R tiles",
        "yes: 2 cores share each A tile",
        "16,778,496 B, 16,777,216 B of it the system's",
        "UB of a core: 166,384 of 196,608 B used",
        "inA0 150,000 76.3%",
        "free 30,224 15.4%",
        "2 3-5 1 0-1 1,200 1 2,002 3 4 5",
        "... 1 more (--cores all)",
        "ReduceSum sum_dy 4 11 12,345 13 14 15 19,200 64 50.0% 1",
        "0 1 -1.25 1e-30",
        "sumDy 0 1.0 1.0 0 1 nan inf inf largest of 3 in channel 1 inf",
        "gradBias masked off",
        "Time: 12.3 ms for the operator, 61.0 s in all, of which 60.0 s compiling",
    ):
        assert expected in flat
    assert "3 3-5" not in flat


@pytest.mark.parametrize("width", [80, 200])
def test_reports_fit_the_width(run_summary, width):
    options = {"channels": 3, "cores": None, "total_seconds": 0.5, "compile_seconds": 0.0}
    text = printed(report.print_run, run_summary, width=width, **options)
    assert max(map(len, text.splitlines())) <= width
    assert "compiling" not in text


def test_run_record_is_complete_and_strict(run_summary):
    record = records.run_record(run_summary, seconds=1.5, compile_seconds=1.0)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["fidelity"] == "model"
    assert "sources" not in record["product"]
    assert record["outputs"]["sum_dy"] == {
        "dtype": "float16",
        "values": [1.0, "nan", 0.333251953125],
        "exact": ["0x1p+0", "inf", "-0x0.5p+0"],
        "rounded": [1.0, "inf", -0.3125],
        "error_ulp": [0.0, "inf", 2645.0],
        "largest_error_ulp": "inf",
        "largest_error_channel": 1,
        "values_hex": ["0x1.0000000000000p+0", "nan", "0x1.5540000000000p-2"],
        "rounded_hex": ["0x1.0000000000000p+0", "inf", "-0x1.4000000000000p-2"],
    }
    assert record["outputs"]["grad_bias"] is None
    assert record["plan"]["ub_buffers"][0] == {"name": "inA0", "bytes": 150000}
    assert record["plan"]["work"][3]["partials"]["sum_dy_x"] == ["nan", 1e-30, "inf"]
    assert record["plan"]["combine"] == [{"core": 0, "channels": [0, 6]}]
    assert record["launches"][0]["instructions"]["VECTOR"] == 12345
    assert record["seconds"] == {"operator": 0.0123, "command": 1.5, "compiling": 1.0}


@pytest.mark.parametrize("value", [0.0, -1.5, 1e-310, 2.0**200, 0.1, -3.0, math.ulp(0.0)])
def test_exact_numbers_read_back(value):
    assert float.fromhex(records.hex_text(Fraction(value))) == value
    assert float.fromhex(records.hex_text(value)) == value


def test_long_exact_numbers_keep_every_digit():
    value = 1 + Fraction(1, 2**80)
    assert records.hex_text(value) == "0x1." + "0" * 19 + "1p+0"
    assert records.hex_text(-value / 2) == "-0x0.8" + "0" * 19 + "8p+0"


def test_numbers_of_tables():
    assert [tables.span(r) for r in ((0, 1), (3, 9), (4, 4))] == ["0", "3-8", "none"]
    assert [tables.plural(n, "core") for n in (1, 2000)] == ["1 core", "2,000 cores"]
    assert tables.number(0.333251953125, "float16") == "0.3333"
    assert tables.number(float("-inf"), "bfloat16") == "-inf"
    assert [tables.seconds(s) for s in (0.00012, 0.5, 75.04)] == ["0.12 ms", "500 ms", "75.0 s"]


def test_shapes_and_changes():
    assert parse_shape("2x3") == parse_shape(" 2 , 3") == parse_shape("2×3") == parse_shape("(2,3,)") == (2, 3)
    settings = [
        "vector_cores=40",
        "clock_mhz = 1.5",
        "dtypes=float32, float16",
        "hard_sync_all=false",
        "hbm_bytes=none",
    ]
    assert parse_changes(settings) == {
        "vector_cores": 40,
        "clock_mhz": 1.5,
        "dtypes": ("float32", "float16"),
        "hard_sync_all": False,
        "hbm_bytes": None,
    }
    assert (parse_count("all", "--cores"), parse_count(" 12", "--cores")) == (None, 12)


def test_chunks_of_the_second_stage():
    assert [(w.core, w.channels) for w in combine_work(150, 64)] == [(0, (0, 64)), (1, (64, 128)), (2, (128, 150))]
    assert [(w.core, w.channels) for w in combine_work(300, 2)] == [(0, (0, 192)), (1, (192, 300))]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_silent_without_a_terminal(capsys):
    with LateProgress(delay_seconds=0) as progress:
        progress.report("kernel", 1, 2)
    assert capsys.readouterr().err == ""


def test_progress_comes_late_and_shows_the_kernel(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with LateProgress(delay_seconds=30) as progress:
        progress.step("soon over")
    assert terminal.getvalue() == ""
    with LateProgress(delay_seconds=30) as progress:
        progress.step("reading")
        progress._show()
        progress.report("reduce_sum", 3, 64)
        progress._display.refresh()
    assert "reduce_sum" in terminal.getvalue() and "3/64" in terminal.getvalue()
    progress._show()  # a timer that fires too late
