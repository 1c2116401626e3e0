"""Launches: arrival orders, the event log, what a Run holds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import VENDOR, EmulatorError, GlobalMemory, Run, Schedule, exhaustive, kernel, launch, products
from emulator.core import Core, GlobalTensor, at, set_tile
from emulator.events import EVENT
from emulator.isa import (
    INSTRUCTIONS,
    NO_PAD,
    SYNC_ALL,
    V_MTE3,
    CopyParams,
    Pipe,
    add,
    data_copy_in,
    data_copy_out,
    data_copy_pad_in,
    duplicate,
    init_buffer,
    set_flag,
    sync_all,
    wait_flag,
)
from emulator.launch import FIRST_LOG

CHIP = products.get("950")
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()
VALUES = np.array([2.0**24, 1.0, -(2.0**24), 3.0], np.float32)


@kernel(buffers=("sum", "mine"), writes=("total",))
def accumulate(core: Core, x: GlobalTensor, total: GlobalTensor, more: int) -> None:
    """total += x[core], in the order the cores arrive (what an atomic add does); ``more`` pairs of events."""
    for _ in range(more):
        set_flag(core, V_MTE3, 0)
        wait_flag(core, V_MTE3, 0)
    sums, mine = init_buffer(core, 32), init_buffer(core, 32)
    data_copy_in(core, sums, total, 0, 8)
    data_copy_in(core, mine, x, 8 * core.index, 8)
    add(core, sums, sums, mine, 8)
    data_copy_out(core, total, 0, sums, 8)


@kernel(buffers=("mine", "other"), writes=("workspace", "total"))
def two_stages(core: Core, x: GlobalTensor, workspace: GlobalTensor, total: GlobalTensor):
    """Partial results through the workspace; core 0 adds them by block index."""
    mine, other = init_buffer(core, 32), init_buffer(core, 32)
    data_copy_in(core, mine, x, 8 * core.index, 8)
    data_copy_out(core, workspace, 8 * core.index, mine, 8)
    sync_all(core)
    yield SYNC_ALL
    if core.index == 0:
        for block in range(1, core.blocks):
            data_copy_in(core, other, workspace, 8 * block, 8)
            add(core, mine, mine, other, 8)
        data_copy_out(core, total, 0, mine, 8)


@kernel(buffers=("sum", "one"), writes=("total",))
def count_up(core: Core, one: GlobalTensor, total: GlobalTensor, times: int) -> None:
    """total[core] += times * one[core], in GM: running it twice would show."""
    sums, ones = init_buffer(core, 32), init_buffer(core, 64)
    data_copy_in(core, sums, total, 8 * core.index, 8)
    data_copy_in(core, at(ones, 32), one, 8 * core.index, 8)
    for i in range(times * (core.index + 1)):
        set_tile(core, i)
        add(core, sums, sums, at(ones, 32), 8)  # in the loop
    set_tile(core, -1)
    set_flag(core, V_MTE3, core.index)
    wait_flag(core, V_MTE3, core.index)
    data_copy_out(core, total, 8 * core.index, sums, 8)  # at the end


@kernel(buffers=("fresh",), writes=("out",))
def leave_as_found(core: Core, out: GlobalTensor) -> None:
    """Store what an untouched buffer holds, then dirty it for the next core."""
    fresh = init_buffer(core, 256)
    data_copy_out(core, out, 64 * core.index, fresh, 64)
    duplicate(core, fresh, 0.0, 64)


@kernel(buffers=("b",), writes=("out",))
def meet_often(core: Core, out: GlobalTensor, times: int):
    """Every core writes in its turn and meets the others ``times`` times."""
    b = init_buffer(core, 32)
    for _ in range(times):
        data_copy_pad_in(core, b, out, core.index, CopyParams(1, 4, 0, 0), NO_PAD)
        sync_all(core)
        yield SYNC_ALL
    data_copy_out(core, out, 8 * core.blocks, b, 8)


def line_of(marker: str) -> int:
    return next(number for number, text in enumerate(SOURCE, 1) if text.endswith(f"# {marker}"))


def arrive(schedule: Schedule, events: bool = False, more: int = 0) -> bytes:
    memory = GlobalMemory()
    total = np.zeros(8, np.float32)
    x = memory.bind("x", np.repeat(VALUES, 8))
    launch(accumulate, 4, x, memory.bind("total", total), more, product=CHIP, schedule=schedule, events=events)
    return total.tobytes()


def meet(schedule: Schedule) -> bytes:
    memory = GlobalMemory()
    x = memory.bind("x", np.repeat(VALUES, 8))
    workspace, total = memory.alloc("workspace", 32), memory.alloc("total", 8)
    run = launch(two_stages, 4, x, workspace, total, product=CHIP, schedule=schedule)
    assert run.sync_rounds == 1 and run.schedule == schedule.label
    return memory["total"].tobytes()


def in_order(order: Any) -> bytes:
    """The sum of VALUES in an order, from 0."""
    total = np.float32(0)
    for i in order:
        total = np.float32(total + VALUES[i])
    return np.full(8, total).tobytes()


# ---- schedules


@pytest.mark.jitless
def test_no_order_changes_a_deterministic_kernel():
    orders = list(exhaustive(4))
    assert len(orders) == 24 == len({s.order for s in orders})
    assert {meet(s) for s in orders} == {meet(VENDOR)} == {in_order(range(4))}


@pytest.mark.jitless
def test_orders_act_a_kernel_that_adds_as_cores_arrive_shows_them():
    results = {s.order: arrive(s) for s in exhaustive(4)}
    assert all(result == in_order(order) for order, result in results.items())
    assert len(set(results.values())) > 2
    assert arrive(VENDOR) == results[(0, 1, 2, 3)]


def test_seeded_orders_are_reproducible_and_differ():
    seeds = [arrive(Schedule(seed=seed)) for seed in range(30)]
    assert seeds == [arrive(Schedule(seed=seed)) for seed in range(30)]
    assert len(set(seeds)) > 2
    for seed in range(5):
        assert seeds[seed] == in_order(next(Schedule(seed=seed).rounds(4)))


def test_seeded_orders_change_from_round_to_round():
    rounds = Schedule(seed=3).rounds(20)
    first, second = next(rounds), next(rounds)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second


@settings(max_examples=30)
@given(blocks=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_every_round_is_a_permutation(blocks, seed):
    for schedule in (VENDOR, Schedule(seed=seed), Schedule(order=tuple(reversed(range(blocks))))):
        rounds = schedule.rounds(blocks)
        for _ in range(3):
            assert sorted(next(rounds)) == list(range(blocks))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (1, 2, 3, 4), ()])
def test_a_listed_order_must_be_a_permutation(order):
    with pytest.raises(EmulatorError, match=r"order: got .* allowed: every block index 0 to 3 exactly once"):
        arrive(Schedule(order=order))


@pytest.mark.parametrize("blocks", [0, 9])
def test_all_orders_of_too_many_cores(blocks):
    with pytest.raises(EmulatorError, match=f"blocks: got {blocks}; allowed: 1 to 8"):
        next(exhaustive(blocks))
    assert sum(1 for _ in exhaustive(5)) == math.factorial(5)


def test_labels_tell_schedules_apart():
    labels = [VENDOR.label, Schedule(seed=7).label, Schedule(order=(1, 0)).label]
    assert labels == ["vendor (ascending block index)", "seed 7", "listed 1,0"]


# ---- events


def counted(times: int, events: bool, schedule: Schedule = VENDOR, blocks: int = 3) -> tuple[np.ndarray, Run]:
    memory = GlobalMemory()
    total = np.arange(8 * blocks, dtype=np.float32)
    one = memory.bind("one", np.ones(8 * blocks, np.float32))
    run = launch(
        count_up, blocks, one, memory.bind("total", total), times, product=CHIP, schedule=schedule, events=events
    )
    return total, run


TIMES = FIRST_LOG + 200
"""More events per core than there is room for at first."""


@pytest.mark.jitless
@pytest.mark.parametrize("times", [5, FIRST_LOG - 8, FIRST_LOG - 7, TIMES])
def test_gm_is_written_once_however_long_the_log(times):
    """A run whose log overflows is repeated; what it had added in GM must not be there twice."""
    blocks = 2
    total, run = counted(times, events=True, blocks=blocks)
    want = np.arange(8 * blocks) + np.repeat(np.arange(1, blocks + 1) * times, 8)
    np.testing.assert_array_equal(total, want.astype(np.float32))
    assert len(run.events) == run.counts[:, :, 0].sum() == sum(times * (i + 1) for i in range(blocks)) + 7 * blocks


def test_counts_equal_the_events():
    _, run = counted(TIMES, events=True)
    want = np.zeros_like(run.counts)
    for event in run.events:
        want[event["core"], event["opcode"]] += (1, event["repeats"], event["bytes"])
    np.testing.assert_array_equal(run.counts, want)
    _, without = counted(TIMES, events=False)
    assert without.events is None
    np.testing.assert_array_equal(run.counts, without.counts)


def test_events_are_in_program_order_with_lines_tiles_addresses_and_bytes():
    _, run = counted(TIMES, events=True, schedule=Schedule(order=(2, 0, 1)))
    assert run.events.dtype == EVENT
    names = {opcode: row.name for opcode, row in INSTRUCTIONS.items()}
    assert (np.diff(run.events["core"]) >= 0).all()
    for core in range(3):
        own = run.events[run.events["core"] == core]
        n = TIMES * (core + 1)
        assert len(own) == n + 7
        got = [names[int(op)] for op in own["opcode"]]
        assert got == (
            ["init_buffer"] * 2 + ["data_copy_in"] * 2 + ["add"] * n + ["set_flag", "wait_flag", "data_copy_out"]
        )
        adds = own[4 : 4 + n]
        assert (adds["line"] == line_of("in the loop")).all()
        np.testing.assert_array_equal(adds["tile"], np.arange(n))
        fields = ["dst", "src0", "src1", "bytes", "repeats", "mask"]
        assert set(adds[fields].tolist()) == {(0, 0, 64, 32, 1, 8)}
        end = own[-1]
        assert end["line"] == line_of("at the end") and end["tile"] == -1
        assert end["dst"] == run.gm["total"][0] + 32 * core and end["src0"] == 0 and end["bytes"] == 32
        assert list(own["pipe"][:2]) == [Pipe.SCALAR] * 2 and end["pipe"] == Pipe.MTE3
        assert {int(f) for f in own["flag"]} == {-1, 8 * V_MTE3 + core}


def test_two_runs_with_events_are_identical():
    first, second = (counted(TIMES, events=True) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].events.tobytes() == second[1].events.tobytes()


@pytest.mark.jitless
def test_events_change_no_result():
    for schedule in (VENDOR, Schedule(seed=11), Schedule(order=(3, 1, 0, 2))):
        assert arrive(schedule, events=True) == arrive(schedule)


def test_a_rerun_for_the_log_keeps_the_arrival_order():
    """The second run of a seeded schedule has the order of the first, and starts from the same GM."""
    for seed in range(6):
        assert arrive(Schedule(seed=seed), events=True, more=FIRST_LOG) == arrive(Schedule(seed=seed))


# ---- the machine a kernel finds


@pytest.mark.jitless
def test_the_ub_is_poisoned_for_every_core():
    """Twelve cores one after another on the UBs of the ones before: NaN in fp32, fp16 and bf16."""
    out = np.zeros(12 * 64, np.float32)
    launch(leave_as_found, 12, GlobalMemory().bind("out", out), product=CHIP)
    assert np.isnan(out).all() and (out.view(np.uint8) == 0xFF).all()


@pytest.mark.jitless
@pytest.mark.parametrize("times", [0, 1, 3])
def test_sync_rounds(times):
    memory = GlobalMemory()
    run = launch(meet_often, 3, memory.alloc("out", 40), times, product=CHIP)
    assert run.sync_rounds == times
    assert run.instructions_by_pipe()["SYNC"].tolist() == [times] * 3


def test_gm_addresses():
    memory = GlobalMemory()
    x, workspace, total = memory.bind("x", np.repeat(VALUES, 8)), memory.alloc("w", 33), memory.alloc("t", 8)
    run = launch(two_stages, 4, x, workspace, total, product=CHIP)
    assert list(run.gm) == ["x", "workspace", "total"] and [size for _, size in run.gm.values()] == [128, 132, 32]
    end = 0
    for address, size in run.gm.values():
        assert address % 512 == 0 and address >= end
        end = address + size


@pytest.mark.jitless
def test_progress_is_told_after_every_core():
    told = []
    memory = GlobalMemory()
    launch(
        meet_often,
        3,
        memory.alloc("out", 40),
        1,
        product=CHIP,
        progress=lambda name, done, of: told.append((name, done, of)),
    )
    assert told == [("meet_often", done, 3) for done in (0, 0, 0, 1, 2, 3)]


# ---- what a Run tells


def test_summaries_of_a_run():
    _, run = counted(4, events=False)
    pipes = run.instructions_by_pipe()
    assert set(pipes) == {"SCALAR", "VECTOR", "MTE2", "MTE3", "SYNC"}
    assert {name: counts.tolist() for name, counts in pipes.items()} == {
        "SCALAR": [2, 2, 2],
        "VECTOR": [4, 8, 12],
        "MTE2": [2, 2, 2],
        "MTE3": [1, 1, 1],
        "SYNC": [2, 2, 2],
    }
    assert {n: b.tolist() for n, b in run.bytes_by_pipe().items()} == {"MTE2": [64] * 3, "MTE3": [32] * 3}
    assert run.ub_used_bytes == 96
    assert [(b.name, b.address, b.bytes) for b in run.buffers] == [("sum", 0, 32), ("one", 32, 64)]
    assert (run.kernel, run.blocks, run.schedule) == ("count_up", 3, VENDOR.label)
    assert Path(run.path).name == "test_launch.py" and run.product is CHIP
    assert sum(c.sum() for c in pipes.values()) == run.counts[:, :, 0].sum()


def test_missing_instructions_of_a_model_product():
    def run_on(chip: str) -> list[str]:
        memory = GlobalMemory()
        run = launch(meet_often, 2, memory.alloc("out", 40), 1, product=products.get(chip))
        return [row.name for row in run.missing_instructions]

    assert run_on("Ascend910A") == ["data_copy_pad_in"]
    assert run_on("A2") == run_on("A3") == run_on("950") == []


def test_a_kernel_must_be_called_with_its_arguments():
    with pytest.raises(ValueError, match="argument"):
        launch(accumulate, 1, GlobalMemory().alloc("x", 8), product=CHIP)


def test_writes_must_name_arguments():
    def f(core, x):
        pass

    with pytest.raises(TypeError, match=r"kernel f: writes names no argument: \['z'\]"):
        kernel(buffers=(), writes=("z",))(f)
