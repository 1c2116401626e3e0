"""What a kernel does wrong is refused, and the message says what, where, how much there is and what to do.

Each wrong instruction below stands on a line with a marker; the tests look the marker up to know the line.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator import EmulatorError, GlobalMemory, HangError, KernelFault, Schedule, kernel, launch, products
from emulator.core import Core, GlobalTensor, LocalTensor, Strides, at
from emulator.isa import (
    FLOAT_TO_HALF,
    HALF_TO_FLOAT,
    MTE2_V,
    MTE3_V,
    NO_PAD,
    SYNC_ALL,
    CopyParams,
    NddmaParams,
    PadParams,
    add,
    add_repeat,
    adds,
    block_reduce_sum,
    cast,
    copy,
    data_copy_in,
    data_copy_out,
    data_copy_pad_in,
    data_copy_pad_out,
    duplicate,
    get_value,
    init_buffer,
    nddma_copy_in,
    pair_reduce_sum,
    set_flag,
    set_value,
    sync_all,
    wait_flag,
    whole_reduce_sum,
)
from emulator.jit import aicore

CHIP = products.get("950")
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()

CONTIGUOUS = Strides(1, 1, 1, 8, 8, 8)


def line_of(marker: str) -> int:
    """Number of the one line of this file that ends with the marker."""
    found = [number for number, text in enumerate(SOURCE, 1) if text.endswith(f"# {marker}")]
    assert len(found) == 1, f"{marker}: lines {found}"
    return found[0]


@aicore
def outside(core: Core, a: LocalTensor, b: LocalTensor, case: int) -> None:
    if case == 0:
        add(core, a, at(b, 64), b, 64)  # out: end of a source
    elif case == 1:
        add(core, at(a, -32), b, b, 8)  # out: before the first buffer
    elif case == 2:
        duplicate(core, at(b, -32), 1.0, 8)  # out: the buffer before
    elif case == 3:
        copy(core, at(b, 32), a, 64)  # out: end of the destination
    elif case == 4:
        cast(core, b, at(a, 224), HALF_TO_FLOAT, 0, 24)  # out: end of a narrow source
    elif case == 5:
        add_repeat(core, a, b, b, 64, 2, CONTIGUOUS)  # out: second iteration
    elif case == 6:
        whole_reduce_sum(core, a, b, 64, 1, 1, 2, 8)  # out: block stride
    elif case == 7:
        whole_reduce_sum(core, at(a, 252), b, 8, 2, 1, 1, 1)  # out: second result
    elif case == 8:
        get_value(core, a, 64)  # out: read of a value
    elif case == 9:
        set_value(core, a, -1, 1.0)  # out: write of a value
    elif case == 10:
        adds(core, a, b, 1.0, -8)  # bad count


@aicore
def outside_copies(core: Core, a: LocalTensor, b: LocalTensor, x: GlobalTensor, y: GlobalTensor, case: int) -> None:
    if case == 20:
        data_copy_in(core, at(b, 32), x, 0, 64)  # out: copy in
    elif case == 21:
        data_copy_out(core, y, 0, at(a, 32), 64)  # out: copy out
    elif case == 22:
        data_copy_pad_in(core, b, x, 0, CopyParams(3, 4, 0, 3), NO_PAD)  # out: padded rows in
    elif case == 23:
        data_copy_pad_out(core, y, 0, a, CopyParams(9, 4, 0, 0))  # out: padded rows out
    elif case == 24:
        nddma_copy_in(core, b, x, 0, NddmaParams(2, 8, 40, 1, 8, 8, 8))  # out: nddma
    elif case == 30:
        data_copy_in(core, a, x, 100, 64)  # gm: copy in
    elif case == 31:
        data_copy_out(core, y, -1, a, 8)  # gm: copy out
    elif case == 32:
        data_copy_pad_in(core, a, x, 120, CopyParams(2, 16, 16, 0), NO_PAD)  # gm: padded rows in
    elif case == 33:
        data_copy_pad_out(core, y, 0, a, CopyParams(2, 4, 0, 508))  # gm: padded rows out
    elif case == 34:
        nddma_copy_in(core, a, x, 121, NddmaParams(1, 0, 8, 1, 8, 8, 8))  # gm: nddma
    elif case == 40:
        data_copy_in(core, a, x, 0, 7)  # bad copy count


@aicore
def limits(core: Core, a: LocalTensor, b: LocalTensor, x: GlobalTensor, case: int) -> None:
    if case == 50:
        add(core, at(a, 16), b, b, 8)  # unaligned: destination
    elif case == 51:
        add(core, a, at(b, 4), b, 8)  # unaligned: source
    elif case == 52:
        block_reduce_sum(core, at(a, 4), b, 8, 1, 1, 1, 8)  # unaligned: result of blocks
    elif case == 53:
        whole_reduce_sum(core, at(a, 2), b, 8, 1, 1, 1, 8)  # unaligned: result of a repeat
    elif case == 54:
        set_value(core, at(a, 2), 0, 1.0)  # unaligned: value
    elif case == 55:
        data_copy_pad_in(core, at(a, 8), x, 0, CopyParams(1, 4, 0, 0), NO_PAD)  # unaligned: copy
    elif case == 60:
        add_repeat(core, a, b, b, 1, 256, Strides(1, 1, 1, 0, 0, 0))  # limit: repeat 256
    elif case == 61:
        pair_reduce_sum(core, a, b, 1, 256, 0, 1, 0)  # limit: repeat 256 of a reduction
    elif case == 62:
        add_repeat(core, a, b, b, 1, 1, Strides(1, 1, 1, 8, 256, 8))  # limit: stride 256
    elif case == 63:
        whole_reduce_sum(core, a, b, 1, 1, 1, 256, 8)  # limit: block stride 256
    elif case == 64:
        add_repeat(core, a, b, b, 65, 1, CONTIGUOUS)  # limit: mask 65
    elif case == 65:
        data_copy_pad_in(core, a, x, 0, CopyParams(4096, 4, 0, 0), NO_PAD)  # limit: rows 4096
    elif case == 66:
        data_copy_pad_in(core, a, x, 0, CopyParams(1, 2097152, 0, 0), NO_PAD)  # limit: row of 2 MiB
    elif case == 67:
        data_copy_pad_in(core, a, x, 0, CopyParams(1, 4, 0, 0), PadParams(1, 9, 0, 0.0))  # limit: padding
    elif case == 68:
        cast(core, a, b, FLOAT_TO_HALF, 7, 8)  # limit: rounding mode
    elif case == 69:
        cast(core, a, b, 4, 1, 8)  # limit: pair
    elif case == 70:
        add(core, at(a, 32), a, b, 16)  # overlap: destination above
    elif case == 71:
        copy(core, a, at(a, 32), 16)  # overlap: destination below
    elif case == 72:
        add(core, at(b, 32), a, b, 9)  # overlap: second source
    elif case == 80:
        set_flag(core, MTE2_V, 1)
        set_flag(core, MTE2_V, 1)  # flag: set twice
    elif case == 81:
        wait_flag(core, MTE3_V, 2)  # flag: never set
    elif case == 82:
        set_flag(core, MTE2_V, 8)  # flag: event id 8
    elif case == 83:
        wait_flag(core, MTE2_V, -1)  # flag: event id -1
    elif case == 84:
        set_flag(core, MTE3_V, 3)
    elif case == 85:
        set_flag(core, MTE2_V, 4)  # flag: event id 4
        wait_flag(core, MTE2_V, 4)


@aicore
def loopholes(core: Core, a: LocalTensor, b: LocalTensor, x: GlobalTensor, case: int) -> None:
    if case == 90:
        nddma_copy_in(core, a, x, 0, NddmaParams(2, -16, 8, 1, 8, 8, 8))  # loophole: nddma reads before GM
    elif case == 91:
        whole_reduce_sum(core, b, a, 8, 2, -1, 1, 1)  # loophole: result before the buffer
    elif case == 92:
        set_flag(core, 12, 0)  # loophole: no such HardEvent
    elif case == 93:
        data_copy_pad_in(core, a, x, 0, CopyParams(2, 4, 2, 0), NO_PAD)  # loophole: gap of half an element
    elif case == 94:
        cast(core, at(a, 32), a, HALF_TO_FLOAT, 0, 48)  # loophole: cast onto its source
    elif case == 95:
        add_repeat(core, at(a, 32), a, b, 16, 1, CONTIGUOUS)  # loophole: repeat form overlaps partly
    elif case == 96:
        set_flag(core, -1, 0)  # loophole: negative HardEvent


@aicore
def wrongly_said(core: Core, a: LocalTensor, b: LocalTensor, case: int) -> None:
    if case == 97:
        add_repeat(core, a, b, b, 8, 1, Strides(1, -1, 1, 8, 8, 8))  # limit: negative block stride


@kernel(buffers=("left", "right"), writes=("y",))
def wrong(core: Core, x: GlobalTensor, y: GlobalTensor, case: int, culprit: int) -> None:
    a, b = init_buffer(core, 256), init_buffer(core, 256)
    if core.index == culprit:
        outside(core, a, b, case)
        outside_copies(core, a, b, x, y, case)
        limits(core, a, b, x, case)
        loopholes(core, a, b, x, case)
        wrongly_said(core, a, b, case)


@kernel(buffers=("weights", "tile"), writes=())
def greedy(core: Core, first: int, second: int, times: int) -> None:
    init_buffer(core, first)
    for _ in range(times):
        init_buffer(core, second)  # greedy


@kernel(buffers=(), writes=())
def meets_sometimes(core: Core, absent: int):
    if core.index != absent:
        sync_all(core)
        yield SYNC_ALL


def run_wrong(case: int, culprit: int = 0, product: Any = CHIP) -> None:
    memory = GlobalMemory()
    x, y = (memory.bind(n, np.zeros(128, np.float32)) for n in "xy")
    launch(wrong, culprit + 1, x, y, case, culprit, product=product)


def refused(case: int, marker: str, culprit: int = 0, product: Any = CHIP) -> str:
    """The message of the fault of one case; checks kernel, file, line and core."""
    with pytest.raises(KernelFault) as info:
        run_wrong(case, culprit, product)
    text = str(info.value)
    assert isinstance(info.value, EmulatorError) and "\n" not in text
    assert f"in kernel wrong, test_faults.py:{line_of(marker)}, core {culprit}: " in text
    # Nothing of the machinery below shows: no chained exception, no compiled frame.
    assert info.value.__cause__ is None and info.value.__suppress_context__
    return text


OUTSIDE = [
    # case, marker, instruction, buffer, first byte, bytes
    (0, "out: end of a source", "Add (add)", "right", 320, 256),
    (1, "out: before the first buffer", "Add (add)", "left", -32, 32),
    (2, "out: the buffer before", "Duplicate (duplicate)", "right", 224, 32),
    (3, "out: end of the destination", "Copy (copy)", "right", 288, 256),
    (4, "out: end of a narrow source", "Cast (cast)", "left", 224, 48),
    (5, "out: second iteration", "Add (add_repeat)", "left", 0, 512),
    (6, "out: block stride", "WholeReduceSum (whole_reduce_sum)", "right", 256, 480),
    (7, "out: second result", "WholeReduceSum (whole_reduce_sum)", "left", 252, 8),
    (8, "out: read of a value", "LocalTensor::GetValue (get_value)", "left", 256, 4),
    (9, "out: write of a value", "LocalTensor::SetValue (set_value)", "left", -4, 4),
    (20, "out: copy in", "DataCopy (data_copy_in)", "right", 288, 256),
    (21, "out: copy out", "DataCopy (data_copy_out)", "left", 32, 256),
    (22, "out: padded rows in", "DataCopyPad (data_copy_pad_in)", "right", 256, 288),
    (23, "out: padded rows out", "DataCopyPad (data_copy_pad_out)", "left", 0, 288),
    (24, "out: nddma", "DataCopy (NDDMA) (nddma_copy_in)", "right", 256, 320),
]


@pytest.mark.jitless
@pytest.mark.parametrize(("case", "marker", "instruction", "buffer", "first", "size"), OUTSIDE, ids=lambda v: str(v))
def test_outside_the_buffer(case, marker, instruction, buffer, first, size):
    text = refused(case, marker)
    start = {"left": 0, "right": 256}[buffer]
    assert text.startswith(instruction)
    assert f"bytes {first}..{first + size - 1} of the UB lie outside buffer {buffer}" in text
    assert f"({start}..{start + 255}, 256 B, UB capacity 253952 B)" in text
    assert f"size {size} B" in text


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("case", "marker", "buffer", "address", "align", "size"),
    [
        (50, "unaligned: destination", "left", 16, 32, 32),
        (51, "unaligned: source", "right", 260, 32, 32),
        (52, "unaligned: result of blocks", "left", 4, 32, 32),
        (53, "unaligned: result of a repeat", "left", 2, 4, 4),
        (54, "unaligned: value", "left", 2, 4, 4),
        (55, "unaligned: copy", "left", 8, 32, 32),
    ],
)
def test_unaligned(case, marker, buffer, address, align, size):
    text = refused(case, marker)
    assert f"UB address {address} in buffer {buffer} is not a multiple of {align}" in text
    assert f"size {size} B, UB capacity 253952 B" in text


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("case", "marker", "name", "first", "end"),
    [
        (30, "gm: copy in", "x", 400, 656),
        (31, "gm: copy out", "y", -4, 28),
        (32, "gm: padded rows in", "x", 480, 528),
        (33, "gm: padded rows out", "y", 0, 516),
        (34, "gm: nddma", "x", 484, 516),
    ],
)
def test_outside_global_memory(case, marker, name, first, end):
    text = refused(case, marker)
    assert f"bytes {first}..{end - 1} of {name} in global memory are outside its 512 B" in text


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("case", "marker", "got", "most", "where"),
    [
        (60, "limit: repeat 256", 256, 255, "left, UB address 0"),
        (61, "limit: repeat 256 of a reduction", 256, 255, "right, UB address 256"),
        (62, "limit: stride 256", 256, 255, "right, UB address 256"),
        (63, "limit: block stride 256", 256, 255, "right, UB address 256"),
        (65, "limit: rows 4096", 4096, 4095, "left"),
        (66, "limit: row of 2 MiB", 2097152, 2097151, "left"),
    ],
)
def test_limits_of_the_encoding(case, marker, got, most, where):
    text = refused(case, marker)
    assert f"got {got} for a repeat count, stride, padding, row count or row length (buffer {where}" in text
    assert text.endswith(f"allowed: 0 to {most}")


@pytest.mark.jitless
def test_masks_have_1_to_64_lanes():
    assert "got mask 65 (buffer left, UB address 0); allowed: 1 to 64 lanes" in refused(64, "limit: mask 65")


@pytest.mark.jitless
def test_padding_is_at_most_32_bytes():
    assert re.search(r"\b9\b", refused(67, "limit: padding"))


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("case", "marker", "text"), [(68, "limit: rounding mode", "mode 7"), (69, "limit: pair", "pair 4")]
)
def test_cast_modes_and_pairs(case, marker, text):
    assert text in refused(case, marker)


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("case", "marker", "dst", "src"),
    [
        (70, "overlap: destination above", "left, UB 32..95", 0),
        (71, "overlap: destination below", "left, UB 0..63", 32),
        (72, "overlap: second source", "right, UB 288..323", 256),
    ],
)
def test_partial_overlap(case, marker, dst, src):
    assert f"dst (buffer {dst}) overlaps a source at UB {src} partly" in refused(case, marker)


@pytest.mark.jitless
@pytest.mark.parametrize(("case", "marker", "got"), [(10, "bad count", -32), (40, "bad copy count", 28)])
def test_counts(case, marker, got):
    assert f"count of {got} B" in refused(case, marker)


# ---- the UB itself


@pytest.mark.jitless
@pytest.mark.parametrize("first", [32, 1000, 253952])
def test_ub_full_shows_the_map_of_live_buffers(first):
    held = -(-first // 32) * 32
    with pytest.raises(KernelFault) as info:
        launch(greedy, 1, first, 253953, 1, product=CHIP)
    text = str(info.value)
    assert f"in kernel greedy, test_faults.py:{line_of('greedy')}, core 0: " in text
    assert f"buffer tile asks for 253984 B at UB address {held}, but {held} B of 253952 B are taken" in text
    assert f"(weights {held} B at 0)" in text


@pytest.mark.jitless
def test_ub_full_counts_every_buffer_and_the_product_decides():
    small = CHIP.replace(ub_bytes=16384)
    with pytest.raises(KernelFault, match=r"UB address 12288, but 12288 B of 16384 B are taken") as info:
        launch(greedy, 1, 4096, 8192, 2, product=small)
    assert "weights 4096 B at 0, tile 8192 B at 4096" in str(info.value)
    launch(greedy, 1, 8192, 8192, 1, product=small)


@pytest.mark.jitless
def test_at_most_64_buffers():
    launch(greedy, 1, 32, 32, 63, product=CHIP)
    with pytest.raises(KernelFault) as info:
        launch(greedy, 1, 32, 32, 64, product=CHIP)
    text = str(info.value)
    assert f"test_faults.py:{line_of('greedy')}, core 0" in text
    assert "buffer64 at UB address 2048, 32 B" in text and "allowed: 64 buffers" in text


@pytest.mark.jitless
@pytest.mark.parametrize("size", [0, -5])
def test_a_buffer_of_no_bytes(size):
    with pytest.raises(KernelFault, match=f"count of {size} B at UB address 32 of buffer tile"):
        launch(greedy, 1, 32, size, 1, product=CHIP)


# ---- which core, which line


@pytest.mark.jitless
@pytest.mark.parametrize("culprit", [0, 3])
def test_the_core_at_fault_is_named(culprit):
    refused(0, "out: end of a source", culprit)


@pytest.mark.jitless
def test_the_first_core_to_arrive_is_named():
    """Every core of this launch asks for too much; the schedule says which is first."""
    with pytest.raises(KernelFault, match="core 2"):
        launch(greedy, 4, 32, 1 << 20, 1, product=CHIP, schedule=Schedule(order=(2, 0, 1, 3)))


@pytest.mark.jitless
def test_a_launch_after_a_fault_is_untouched_by_it():
    refused(80, "flag: set twice")
    run_wrong(-1)


# ---- flags


@pytest.mark.jitless
def test_flag_set_twice():
    assert "HardEvent MTE2_V id 1 is set already and nothing waited for it" in refused(80, "flag: set twice")


@pytest.mark.jitless
def test_flag_never_set():
    assert "HardEvent MTE3_V id 2 was never set: the wait would hang" in refused(81, "flag: never set")


@pytest.mark.jitless
def test_flag_left_set_at_the_end():
    with pytest.raises(KernelFault, match="kernel wrong, core 0: HardEvent MTE3_V id 3 is still set at the end"):
        run_wrong(84)


@pytest.mark.jitless
@pytest.mark.parametrize(("case", "marker", "got"), [(82, "flag: event id 8", 8), (83, "flag: event id -1", -1)])
def test_event_ids(case, marker, got):
    text = refused(case, marker)
    assert f"event id {got} of HardEvent MTE2_V; allowed: 0 to 7 on Ascend950PR_9589" in text


@pytest.mark.jitless
def test_event_id_4_is_one_too_many_on_910a():
    run_wrong(85)
    text = refused(85, "flag: event id 4", product=products.get("Ascend910A"))
    assert "event id 4 of HardEvent MTE2_V; allowed: 0 to 3 on Ascend910A" in text


# ---- meeting points and block counts


@pytest.mark.jitless
@pytest.mark.parametrize("blocks", [0, -1, 65536])
def test_block_count(blocks):
    with pytest.raises(EmulatorError, match=f"blocks: got {blocks}; allowed: 1 to 65535"):
        launch(meets_sometimes, blocks, -1, product=CHIP)


@pytest.mark.jitless
@pytest.mark.parametrize(
    "schedule", [Schedule(), Schedule(seed=1), Schedule(order=(3, 2, 1, 0))], ids=lambda s: s.label
)
@pytest.mark.parametrize("absent", [0, 2, 3])
def test_sync_all_that_a_core_never_reaches(absent, schedule):
    with pytest.raises(HangError) as info:
        launch(meets_sometimes, 4, absent, product=CHIP, schedule=schedule)
    waiting = [i for i in range(4) if i != absent]
    text = str(info.value)
    assert isinstance(info.value, EmulatorError)
    assert f"kernel meets_sometimes: cores {waiting} wait at SyncAll for cores [{absent}], which have ended" in text


@pytest.mark.jitless
def test_sync_all_with_more_blocks_than_cores():
    machine = CHIP.replace(vector_cores=3)
    launch(meets_sometimes, 3, -1, product=machine)
    with pytest.raises(HangError, match=r"SyncAll with 4 blocks; .* runs 3 at once.*launch at most 3 blocks"):
        launch(meets_sometimes, 4, -1, product=machine)


def test_more_blocks_than_cores_is_fine_without_a_meeting():
    launch(greedy, 5, 32, 32, 1, product=CHIP.replace(vector_cores=2))


# ---- loopholes found by trying to break the instructions: each was accepted once


@pytest.mark.parametrize(
    ("case", "marker"),
    [
        (90, "loophole: nddma reads before GM"),
        (91, "loophole: result before the buffer"),
        (92, "loophole: no such HardEvent"),
        (96, "loophole: negative HardEvent"),
        (93, "loophole: gap of half an element"),
        (94, "loophole: cast onto its source"),
        (95, "loophole: repeat form overlaps partly"),
    ],
)
def test_loopholes(case, marker):
    refused(case, marker)


def test_the_padding_limit_is_in_the_unit_of_what_was_got():
    assert "allowed: 0 to 8" in refused(67, "limit: padding")


def test_the_refused_stride_is_shown():
    assert "got -1" in refused(97, "limit: negative block stride")
