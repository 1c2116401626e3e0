from itertools import pairwise

import event_streams as streams
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import products
from emulator.errors import EmulatorError
from emulator.timing import critical_path, dependency_floor_ps, time_run, timing_parameters, utilisation
from emulator.timing.banks import beats_per_repeat
from emulator.timing.parameters import parse_changes
from emulator.timing.utilisation import Part
from emulator.timing.vendor_add import PUBLISHED, add_run

VECTOR, MTE2, MTE3 = 1, 2, 3
A2 = products.get("Ascend910B1")


# The published Add example


@pytest.mark.parametrize("case", PUBLISHED)
def test_add_example_is_within_a_tenth_of_the_board(case):
    want = PUBLISHED[case]
    timeline = time_run(add_run(A2, cores=want.cores, copy_bytes=want.copy_bytes, buffers=want.buffers))
    u = utilisation(timeline)
    assert timeline.aiv_time_us == pytest.approx(want.aiv, rel=0.1)
    assert timeline.task_us == pytest.approx(want.task, rel=0.1)
    for pipe, published in ((VECTOR, want.vec), (MTE2, want.mte2), (MTE3, want.mte3)):
        assert u.busy(pipe).mean() / 1e6 == pytest.approx(published, rel=0.1), pipe


# UB banks


def beats(arch, dst, src0, src1, blk=(1, 1, 1), rep=(8, 8, 8), blocks=8, written=8):
    return beats_per_repeat(arch, dst, src0, src1, np.array(blk, np.int16), np.array(rep, np.int16), blocks, written)


def test_published_bank_patterns_of_2201():
    far = 65536  # another bank of the same groups
    assert beats(2201, far, 0, -1, blk=(16, 1, 1)) == 8
    assert beats(2201, far, 0, -1, blk=(8, 1, 1)) == 4
    assert beats(2201, far, 0, -1) == 1
    assert beats(2201, far, 0, 8192) == 2, "sources equal modulo 512 bytes collide"
    assert beats(2201, far, 0, 8192 + 256) == 1, "256 bytes apart they do not (Add example, case 6)"
    assert beats(2201, far, 0, 0) == 1, "one row read once serves both sources"


def test_port_rules_of_3510():
    assert beats(3510, -1, 0, 256) == 1, "two reads of a group in one beat"
    assert beats(3510, 4096, 0, -1) == 1, "a read and a write in one beat"
    assert beats(3510, 8192, 0, 4096) == 1.5, "two reads and a write take three of two ports' halves"
    assert beats(3510, 4096, 0, -1, blk=(8, 1, 1)) == 8, "one write per group and beat"


# Random kernels


@st.composite
def runs(draw):
    cores = draw(st.integers(1, 6))
    meet = draw(st.booleans())
    rows = []
    for core in range(cores):
        buffers = draw(st.sampled_from([1, 2]))
        tiles = draw(st.integers(0, 6))
        for _ in range(2 if meet else 1):
            for tile in range(tiles):
                rows += streams.tile_rows(
                    core, tile, buffers, tile < buffers, tile >= tiles - buffers,
                    32 * draw(st.sampled_from([1, 7, 64, 1024])), draw(st.integers(0, 255)),
                    reduce=draw(st.booleans()), barrier=draw(st.booleans()),
                )  # fmt: skip
            if meet:
                rows += [streams.row(core, streams.SYNC, streams.ALL, -1)]
    product = draw(st.sampled_from(["Ascend910B1", "950", "910"]))
    return streams.make_run(rows, cores, product, draw(st.sampled_from([1 << 22, 1 << 30])))


CHANGES = st.sampled_from([{}, {"queue_depth": 1.0}, {"hbm_gbps": 5.0}, {"write_buffer_kib": 1.0, "hbm_gbps": 50.0}])


@settings(max_examples=150)
@given(runs(), CHANGES)
def test_everything_tiles_the_makespan_and_nothing_overlaps(run, changes):
    t = time_run(run, changes=changes)
    assert (t.times.end >= t.times.start).all() and (t.times.done >= t.times.start).all()
    u = utilisation(t)
    assert (u.parts >= 0).all()
    assert (u.parts.sum(axis=2) == t.makespan).all()
    s = t.streams
    for core in range(run.blocks):
        for pipe in range(4):
            items = s.items[s.base[core, pipe] : s.base[core, pipe + 1]]
            assert (t.times.start[items][1:] >= t.times.end[items][:-1]).all()
    waits = s.match >= 0
    assert (t.times.end[waits] >= t.times.done[s.match[waits]]).all()
    path = critical_path(t)
    edges = [(p.start, p.end) for p in path.segments]
    assert edges[0][0] == 0 and edges[-1][1] == t.makespan
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    assert sum(path.by_kind().values()) == t.makespan
    assert dependency_floor_ps(t) <= t.makespan
    assert 0 <= path.assumed_share <= 1
    again = time_run(run, changes=changes)
    assert all(np.array_equal(a, b) for a, b in zip(t.times, again.times, strict=True))


def test_a_full_queue_stalls_the_scalar_unit():
    rows = [streams.row(0, streams.ADD, streams.V, dst=0, src0=0, repeats=255, mask=64) for _ in range(50)]
    run = streams.make_run(rows, 1)
    full = utilisation(time_run(run, changes={"queue_depth": 4})).stalls()[Part.QUEUE_FULL.name]
    roomy = utilisation(time_run(run, changes={"queue_depth": 64})).stalls()[Part.QUEUE_FULL.name]
    assert full > 0 and roomy == 0


def test_cores_leave_sync_all_together():
    rows = []
    for core in range(3):
        work = [streams.row(core, streams.ADD, streams.V, dst=0, src0=0, repeats=100 * core, mask=64)]
        rows += [*work, streams.row(core, streams.SYNC, streams.ALL, -1)]
    t = time_run(streams.make_run(rows, 3))
    ends = t.times.end[t.run.events["opcode"] == streams.SYNC]
    assert len(set(ends)) == 1
    assert (t.times.start[t.run.events["opcode"] == streams.SYNC] < ends).all()


def test_events_that_wait_for_ever_are_refused():
    rows = [streams.row(0, streams.SYNC, streams.ALL, -1), streams.row(1, streams.ADD, streams.V, dst=0, src0=0)]
    with pytest.raises(EmulatorError, match="never come"):
        time_run(streams.make_run(rows, 2))


def test_a_run_without_events_is_refused():
    run = streams.make_run([], 1)
    object.__setattr__(run, "events", None)
    with pytest.raises(EmulatorError, match="events=True"):
        time_run(run)


# Numbers of the model


@pytest.mark.parametrize("name", products.names())
def test_every_number_has_a_kind_a_unit_and_a_source(name):
    parameters = timing_parameters(products.get(name)).parameters
    assert len(parameters) > 40
    for p in parameters.values():
        assert p.kind in ("measured", "published", "assumed")
        assert p.unit and p.source, p.name


def test_what_is_measured_on_one_product_is_assumed_on_another():
    assert timing_parameters(A2).kind("hbm_efficiency") == "measured"
    assert timing_parameters(products.get("A3")).kind("hbm_efficiency") == "assumed"


def test_what_if_changes_are_marked():
    changed = timing_parameters(A2, {"hbm_gbps": 1200.0})
    assert changed["hbm_gbps"] == 1200 and changed.kind("hbm_gbps") == "assumed"
    assert changed.changes == ("hbm_gbps=1200",)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["hbm_gbs=1"], "did you mean hbm_gbps"),
        (["hbm_gbps"], "name=number"),
        (["hbm_gbps=fast"], "name=number"),
        (["hbm_gbps=0"], "greater than 0"),
        (["hbm_gbps=nan"], "finite"),
        (["hbm_efficiency=1.5"], "at most 1"),
        (["queue_depth=1.5"], "whole number"),
    ],
)
def test_bad_settings_are_explained(texts, message):
    with pytest.raises(EmulatorError, match=message) as error:
        timing_parameters(A2, parse_changes(texts))
    assert "\n" not in str(error.value)


def test_less_bandwidth_takes_longer():
    want = PUBLISHED[3]
    run = add_run(A2, cores=48, copy_bytes=want.copy_bytes, buffers=1)
    assert time_run(run, changes={"hbm_gbps": 900}).makespan > 1.7 * time_run(run).makespan


def test_no_time_exceeds_the_roofline_when_l2_serves_the_reads():
    rows = streams.tile_rows(0, 0, 1, True, True, 32768, 8)
    run = streams.make_run(rows, 1, gm_bytes=1 << 22)
    for resident in ((), ("x",)):
        u = utilisation(time_run(run, resident=resident))
        assert u.attained_flops_per_s <= u.roof_flops_per_s


def test_the_assumed_share_follows_the_kinds():
    run = streams.make_run(streams.tile_rows(0, 0, 1, True, True, 32768, 8), 1)
    measured = critical_path(time_run(run)).assumed_share
    changed = critical_path(time_run(run, changes={"mte2_fixed_cycles": 94, "launch_us": 0.46})).assumed_share
    assert measured < changed <= 1
