"""The command called in process, the operator document's example as a file, and hand-made records."""

import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from emulator import products
from studies.summary import (
    CombineWork,
    CoreWork,
    InputSummary,
    LaunchWork,
    OutputSummary,
    PlanSummary,
    RunSummary,
)
from viz.cli import main


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def record(self):
        """Stdout as one strict JSON object."""

        def refuse(text):
            raise AssertionError(f"{text} is not strict JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def aicore(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments):
        status = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return call


@pytest.fixture
def example(tmp_path):
    """The example of the operator's document: sumDy 7 8, sumDyXmu 21 30, gradWeight 21 30, gradBias 7 8."""
    path = tmp_path / "example.npz"
    np.savez(
        path,
        grad_out=np.array([[1, 1], [1, 2], [2, 2], [3, 3]], np.float32),
        input=np.arange(8, dtype=np.float32).reshape(4, 2),
        mean=np.ones(2, np.float32),
        invstd=np.ones(2, np.float32),
    )
    return path


@pytest.fixture
def grouped_plan():
    """Two channel groups, each shared by two cores; no tiling makes exactly this one."""
    work = tuple(
        CoreWork(
            core=core,
            channels=(core // 2 * 3, core // 2 * 3 + 3),
            a_tiles=(core // 2, core // 2 + 1),
            r_tiles=(core % 2 * 2, core % 2 * 2 + 2),
            elements=1200,
            instructions={"SCALAR": 1, "VECTOR": 2000 + core, "MTE2": 3, "MTE3": 4, "SYNC": 5},
            partials={"sum_dy": (0.5, -1.25, 2.0), "sum_dy_x": (float("nan"), 1e-30, float("inf"))},
        )
        for core in range(4)
    )
    return PlanSummary(
        product=products.get("Ascend910B1").replace(vector_cores=5),
        shape=(40, 6, 20),
        canonical_shape=(1, 40, 6, 20),
        pattern="ARAR",
        channels=6,
        elements_per_channel=800,
        a_tiles=2,
        unit_a=3,
        r_tiles=4,
        unit_r=10,
        r_split="N",
        r_tile_elements=200,
        factor_a=1,
        factor_r=2,
        group_r=2,
        cores=4,
        cores_available=5,
        least_elements=1200,
        most_elements=1200,
        ub_buffers=(("inA0", 150000), ("cache", 16384)),
        ub_used_bytes=166384,
        ub_bytes=196608,
        workspace_bytes=16777216 + 1280,
        system_workspace_bytes=16777216,
        tiling_data={"factorACntPerCore": 1, "groupR": 2, "shape": [1, 40, 6, 20]},
        work=work,
        combine=(CombineWork(core=0, channels=(0, 6)),),
    )


@pytest.fixture
def run_summary(grouped_plan):
    masked = OutputSummary(
        name="grad_bias",
        dtype="float16",
        values=None,
        exact=None,
        rounded=None,
        error_ulp=None,
        largest_error_ulp=None,
        largest_error_channel=None,
    )
    shown = OutputSummary(
        name="sum_dy",
        dtype="float16",
        values=(1.0, float("nan"), 0.333251953125),
        exact=(Fraction(1), float("inf"), Fraction(-5, 16)),
        rounded=(1.0, float("inf"), -0.3125),
        error_ulp=(0.0, float("inf"), 2645.0),
        largest_error_ulp=float("inf"),
        largest_error_channel=1,
    )
    return RunSummary(
        product=grouped_plan.product,
        engine="instruction",
        algorithm="cann",
        schedule="seed 7",
        notes=("a note for the reader", "another one"),
        input=InputSummary(
            name="dump",
            path="some/dump.npz",
            shape=(40, 6, 20),
            dtype="float16",
            elements=4800,
            channels=6,
            least_ratio=0.25,
            largest_ratio=128.5,
            largest_ratio_channel=4,
            notes={"loss_scale": 1024.0},
        ),
        out_dtype="float16",
        plan=grouped_plan,
        launches=(
            LaunchWork(
                step="ReduceSum sum_dy",
                kernel="reduce_sum",
                blocks=4,
                instructions={"SCALAR": 11, "VECTOR": 12345, "MTE2": 13, "MTE3": 14, "SYNC": 15},
                bytes_in=19200,
                bytes_out=64,
                sync_rounds=1,
                ub_used_bytes=98304,
            ),
        ),
        outputs=(shown, masked),
        exact_channels=3,
        seconds=0.0123,
    )
