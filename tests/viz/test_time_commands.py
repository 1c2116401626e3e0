import csv
import json

import pytest
import typer
from matplotlib.figure import Figure
from typer.testing import CliRunner

from emulator.errors import EmulatorError
from emulator.timing import utilisation
from studies.timed import timed_operator
from viz import timeline_figures as figures
from viz.chrome_trace import core_name, tid_of, trace_json
from viz.msprof_csv import msprof_tables
from viz.time_commands import parameter_text, register

app = typer.Typer()
register(app)


@pytest.fixture(scope="module")
def run():
    return timed_operator((4, 32, 14, 14), product="950")


@pytest.fixture(scope="module")
def trace(run):
    return json.loads(trace_json([(s.name, s.timeline) for s in run.steps]))["traceEvents"]


def test_trace_has_the_required_fields_and_is_sorted(trace):
    assert {e["ph"] for e in trace} == {"M", "X", "s", "f", "C"}
    for e in trace:
        assert {"name", "ph", "pid", "tid"} <= set(e)
        if e["ph"] != "M":
            assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0 and "code" in e["args"]
    times = [e["ts"] for e in trace if e["ph"] != "M"]
    assert times == sorted(times)


def test_slices_of_a_lane_do_not_overlap(trace):
    last = {}
    for e in trace:
        if e["ph"] == "X":
            lane = e["pid"], e["tid"]
            start = round(e["ts"] * 1000)
            assert start >= last.get(lane, 0)
            last[lane] = start + round(e["dur"] * 1000)


def test_flow_arrows_come_in_pairs(trace):
    starts = {e["id"]: e for e in trace if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    assert len(starts) == sum(e["ph"] == "s" for e in trace) == sum(e["ph"] == "f" for e in trace)
    for number, s in starts.items():
        assert s["ts"] <= ends[number]["ts"] and s["pid"] == ends[number]["pid"] and s["cat"] == "SET_FLAG"


def test_tracks_have_the_vendors_names(trace, run):
    names = {e["args"]["name"] for e in trace if e["name"] == "process_name"}
    cores = max(s.timeline.run.blocks for s in run.steps)
    assert names == {core_name(3510, c) for c in range(cores)} | {"MTE Throughput"}
    assert core_name(3510, 3) == "core1.veccore1" and core_name(1001, 3) == "core3"
    assert {e["args"]["name"] for e in trace if e["name"] == "thread_name"} == {"SCALAR", "VECTOR", "MTE2", "MTE3"}


def test_trace_and_csv_agree_on_busy_times(run):
    for step in run.steps:
        events = json.loads(trace_json([(step.name, step.timeline)]))["traceEvents"]
        rows = msprof_tables(step.name, step.timeline)["PipeUtilization.csv"]
        for lane, column in ((1, "aiv_vec_time(us)"), (2, "aiv_mte2_time(us)"), (3, "aiv_mte3_time(us)")):
            for block, row in enumerate(rows[1:]):
                mine = [e for e in events if e["ph"] == "X" and e["tid"] == tid_of(block, lane)]
                slices = [e["dur"] for e in mine if e["name"] not in ("WAIT_FLAG", "BAR")]
                assert sum(slices) == pytest.approx(float(row[rows[0].index(column)]), abs=0.001 * (len(slices) + 1))


def test_same_run_same_trace_bytes(run):
    again = timed_operator((4, 32, 14, 14), product="950")
    assert trace_json([(s.name, s.timeline) for s in run.steps]) == trace_json(
        [(s.name, s.timeline) for s in again.steps]
    )


def test_figures_are_drawn(run):
    steps = [(s.name, s.timeline) for s in run.steps]
    for figure in (
        figures.gantt(steps),
        figures.utilisation_heatmap(steps),
        figures.stall_waterfall(steps),
        figures.comparison(run, run, ("a", "b")),
    ):
        assert isinstance(figure, Figure)
        figure.canvas.draw()


def test_gantt_says_which_cores_are_idle(run):
    cores = max(s.timeline.run.blocks for s in run.steps)
    text = " ".join(t.get_text() for t in figures.gantt([(s.name, s.timeline) for s in run.steps]).texts)
    assert f"{64 - cores} of 64 cores idle: {cores}-63" in text.replace("\n", " ")


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_timeline_command(tmp_path):
    out = tmp_path / "t.png"
    result = invoke("timeline", "2,3,4,5", "-p", "950", "--out", str(out), "--csv", str(tmp_path / "csv"))
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000
    assert "rests on assumed numbers" in result.output
    assert sorted(p.name for p in (tmp_path / "csv" / "0_Mul").iterdir()) == [
        "ArithmeticUtilization.csv",
        "Memory.csv",
        "OpBasicInfo.csv",
        "PipeUtilization.csv",
        "ResourceConflictRatio.csv",
    ]
    with open(tmp_path / "csv" / "0_Mul" / "OpBasicInfo.csv", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["Block Dim"] == "1"


def test_json_and_what_if():
    slow = json.loads(invoke("timeline", "32,64,56,56", "--set", "hbm_gbps=400", "--json").output)
    fast = json.loads(invoke("timeline", "32,64,56,56", "--json").output)
    assert slow["task_us"] > fast["task_us"] and slow["set"] == ["hbm_gbps=400"]


def test_trace_command(tmp_path):
    out = tmp_path / "t.json"
    result = invoke("trace", "2,3,4,5", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["traceEvents"]


def test_compare_command(tmp_path):
    out = tmp_path / "c.svg"
    result = invoke("compare", "950", "950:8", "--shape", "4,32,14,14", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "times as long" in result.output and out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("timeline", "nothing.npz"), "FILE|SHAPE"),
        (("timeline", "2,3", "--figure", "pie"), "gantt, heatmap"),
        (("timeline", "2,3", "--out", "x.gif"), ".png or .svg"),
        (("timeline", "2,3", "--set", "clock=1"), "clock_mhz"),
        (("trace", "2,3", "--out", "no/such/t.json"), "make the folder"),
        (("compare", "950:0", "950"), "PRODUCT[:CORES]"),
    ],
)
def test_bad_input_gives_one_line(arguments, message):
    error = invoke(*arguments).exception
    assert isinstance(error, EmulatorError)
    assert message in str(error) and "\n" not in str(error)


def test_all_numbers_are_listed():
    text = parameter_text("Ascend910B1")
    assert "hbm_gbps" in text and "published" in text and "Add table" in text
    assert "what-if" in parameter_text("950", ["hbm_gbps=1200"])


def test_idle_cores_of_a_small_shape():
    run = timed_operator((2, 3, 4, 5), product="950")
    assert all(utilisation(s.timeline).idle_cores == tuple(range(1, 64)) for s in run.steps)
