"""Every instruction against an oracle written here: what it does to the bytes of the UB and of GM.

One kernel holds all instructions: it loads an image of a UB buffer, executes one instruction on it and stores
the image. The oracles do the same to NumPy arrays, so a byte written anywhere else fails a test.
"""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import GlobalMemory, Run, kernel, launch, products
from emulator.core import Core, GlobalTensor, Strides, at
from emulator.events import EVENT
from emulator.isa import (
    BFLOAT16_TO_FLOAT,
    FLOAT_TO_BFLOAT16,
    FLOAT_TO_HALF,
    HALF_TO_FLOAT,
    INSTRUCTIONS,
    NO_PAD,
    SYNC_ALL,
    CopyParams,
    HardEvent,
    NddmaParams,
    PadParams,
    Pipe,
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
    mul,
    muls,
    nddma_copy_in,
    pair_reduce_sum,
    pipe_barrier,
    reg_reduce_sum,
    set_flag,
    set_value,
    sub,
    sync_all,
    wait_flag,
    whole_reduce_sum,
)

CHIP = products.get("950")
IMAGE_BYTES = 16384
FEW = settings(max_examples=40)

# What the kernel below executes; the names are those of emulator.isa.
OPS = (
    "add", "sub", "mul", "adds", "muls", "duplicate", "copy", "cast", "add_repeat", "whole_reduce_sum",
    "block_reduce_sum", "pair_reduce_sum", "reg_reduce_sum", "data_copy_in", "data_copy_out", "data_copy_pad_in",
    "data_copy_pad_out", "nddma_copy_in", "get_value", "set_value", "set_flag", "wait_flag", "pipe_barrier",
    "sync_all", "init_buffer",
)  # fmt: skip
(
    ADD, SUB, MUL, ADDS, MULS, DUPLICATE, COPY, CAST, ADD_REPEAT, WHOLE, BLOCK, PAIR, REG, COPY_IN, COPY_OUT, PAD_IN,
    PAD_OUT, NDDMA, GET_VALUE, SET_VALUE, SET_FLAG, WAIT_FLAG, BARRIER, SYNC, INIT,
) = range(len(OPS))  # fmt: skip


class Operands(NamedTuple):
    """Operands of one instruction; each instruction takes those it has. dst, src0, src1: bytes in the image."""

    dst: int = 0
    src0: int = 4096
    src1: int = 8192
    count: int = 64
    """Also mask, flag or pipe."""
    repeat: int = 1
    """Also event id, pair of Cast, index."""
    mode: int = 1
    scalar: float = 0.0
    strides: Strides = Strides(1, 1, 1, 8, 8, 8)
    offset: int = 0
    rows: CopyParams = CopyParams(1, 32, 0, 0)
    pad: PadParams = NO_PAD
    nd: NddmaParams = NddmaParams(1, 0, 8, 1, 0, 8, 8)


@kernel(buffers=("image", "more"), writes=("ub", "gm"))
def bench(core: Core, ub: GlobalTensor, gm: GlobalTensor, op: int, p: Operands):  # a generator, for sync_all
    buf = init_buffer(core, 16384)
    data_copy_in(core, buf, ub, 0, ub.count)
    dst, src0, src1 = at(buf, p.dst), at(buf, p.src0), at(buf, p.src1)
    if op == ADD:
        add(core, dst, src0, src1, p.count)
    elif op == SUB:
        sub(core, dst, src0, src1, p.count)
    elif op == MUL:
        mul(core, dst, src0, src1, p.count)
    elif op == ADDS:
        adds(core, dst, src0, p.scalar, p.count)
    elif op == MULS:
        muls(core, dst, src0, p.scalar, p.count)
    elif op == DUPLICATE:
        duplicate(core, dst, p.scalar, p.count)
    elif op == COPY:
        copy(core, dst, src0, p.count)
    elif op == CAST:
        cast(core, dst, src0, p.repeat, p.mode, p.count)
    elif op == ADD_REPEAT:
        add_repeat(core, dst, src0, src1, p.count, p.repeat, p.strides)
    elif op == WHOLE:
        whole_reduce_sum(core, dst, src0, p.count, p.repeat, p.strides.dst_rep, p.strides.src0_blk, p.strides.src0_rep)
    elif op == BLOCK:
        block_reduce_sum(core, dst, src0, p.count, p.repeat, p.strides.dst_rep, p.strides.src0_blk, p.strides.src0_rep)
    elif op == PAIR:
        pair_reduce_sum(core, dst, src0, p.count, p.repeat, p.strides.dst_rep, p.strides.src0_blk, p.strides.src0_rep)
    elif op == REG:
        reg_reduce_sum(core, dst, src0, p.count)
    elif op == COPY_IN:
        data_copy_in(core, dst, gm, p.offset, p.count)
    elif op == COPY_OUT:
        data_copy_out(core, gm, p.offset, src0, p.count)
    elif op == PAD_IN:
        data_copy_pad_in(core, dst, gm, p.offset, p.rows, p.pad)
    elif op == PAD_OUT:
        data_copy_pad_out(core, gm, p.offset, src0, p.rows)
    elif op == NDDMA:
        nddma_copy_in(core, dst, gm, p.offset, p.nd)
    elif op in (GET_VALUE, SET_VALUE):
        set_value(core, dst, p.repeat, get_value(core, src0, p.count))
    elif op in (SET_FLAG, WAIT_FLAG):
        set_flag(core, p.count, p.repeat)
        wait_flag(core, p.count, p.repeat)
    elif op == BARRIER:
        pipe_barrier(core, p.count)
    elif op == SYNC:
        sync_all(core)
        yield SYNC_ALL
    elif op == INIT:
        init_buffer(core, p.count)
    data_copy_out(core, ub, 0, buf, ub.count)


Result = tuple[np.ndarray, np.ndarray, Run]


def execute(name: str, image: np.ndarray, gm: np.ndarray | None = None, product: Any = CHIP, **operands: Any) -> Result:
    """Run one instruction on one core; returns the image and GM afterwards (GM has 64 guard bytes at each end)."""
    image = image.view(np.float32).copy()
    gm = np.zeros(8, np.float32) if gm is None else gm
    guarded = np.full(gm.nbytes + 128, 0xA5, np.uint8).view(gm.dtype)
    inner = guarded[64 // gm.itemsize : 64 // gm.itemsize + gm.size]
    inner[:] = gm
    memory = GlobalMemory()
    run = launch(
        bench, 1, memory.bind("ub", image), memory.bind("gm", inner), OPS.index(name), Operands(**operands),
        product=product, events=True,
    )  # fmt: skip
    outside = np.r_[guarded.view(np.uint8)[:64], guarded.view(np.uint8)[64 + gm.nbytes :]]
    assert (outside == 0xA5).all(), "wrote outside the GM allocation"
    return image.view(np.uint8), inner.copy(), run


def event_of(run: Run, name: str) -> np.void:
    """The one event of the instruction; bench's own copies and buffers left out."""
    opcode = next(op for op, row in INSTRUCTIONS.items() if row.name == name)
    found = run.events[run.events["opcode"] == opcode]
    index = {"init_buffer": 1, "data_copy_in": 1}.get(name, 0)
    return found[index]


# ---- data and plain oracles


def revealing(count: int, seed: int = 0) -> np.ndarray:
    """fp32 values whose sum shows the order of the additions; no NaN or infinity."""
    rng = np.random.default_rng(seed)
    pool = np.array([2**24, 1, -(2**24), 3, 0.1, -0.7, 1e-40, -0.0, 0.0, 2**-30, 5e6, -5e6, 1e-20], np.float32)
    values = rng.choice(pool, count) * rng.choice([1, 1, 1, 0.75, 1.2], count).astype(np.float32)
    return values.astype(np.float32)


def f32(image: np.ndarray, address: int, count: int) -> np.ndarray:
    return image[address : address + 4 * count].view(np.float32)


def image_of(seed: int = 0) -> np.ndarray:
    return revealing(IMAGE_BYTES // 4, seed).view(np.uint8)


def pair_tree(values: list[np.float32]) -> np.float32:
    """((v0 + v1) + (v2 + v3)) + ..., one fp32 rounding each; lanes beyond the mask are +0."""
    while len(values) > 1:
        values = [np.float32(values[i] + values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


def iteration(image: np.ndarray, p: Operands, r: int) -> list[np.float32]:
    """The 64 lanes of iteration ``r`` of src0."""
    lanes = []
    for lane in range(64):
        block, within = divmod(lane, 8)
        address = p.src0 + 32 * (r * p.strides.src0_rep + block * p.strides.src0_blk) + 4 * within
        lanes.append(np.float32(f32(image, address, 1)[0]) if lane < p.count else np.float32(0))
    return lanes


def want_binary(op: Callable[[Any, Any], Any]) -> Callable[[np.ndarray, Operands], None]:
    def want(image: np.ndarray, p: Operands) -> None:
        a, b = f32(image, p.src0, p.count).copy(), f32(image, p.src1, p.count).copy()
        f32(image, p.dst, p.count)[:] = [op(x, y) for x, y in zip(a, b, strict=True)]

    return want


def want_unary(op: Callable[[Any, Any], Any]) -> Callable[[np.ndarray, Operands], None]:
    def want(image: np.ndarray, p: Operands) -> None:
        a, s = f32(image, p.src0, p.count).copy(), np.float32(p.scalar)
        f32(image, p.dst, p.count)[:] = [op(x, s) for x in a]

    return want


def want_add_repeat(image: np.ndarray, p: Operands) -> None:
    s = p.strides
    for r in range(p.repeat):
        for lane in range(p.count):
            block, within = divmod(lane, 8)
            d, a, b = (
                start + 32 * (r * rep + block * blk) + 4 * within
                for start, blk, rep in (
                    (p.dst, s.dst_blk, s.dst_rep), (p.src0, s.src0_blk, s.src0_rep), (p.src1, s.src1_blk, s.src1_rep),
                )
            )  # fmt: skip
            f32(image, d, 1)[0] = f32(image, a, 1)[0] + f32(image, b, 1)[0]


def want_reduce(group: int) -> Callable[[np.ndarray, Operands], None]:
    """Each ``group`` lanes of an iteration become one value."""

    def want(image: np.ndarray, p: Operands) -> None:
        before = image.copy()
        results = 64 // group
        for r in range(p.repeat):
            lanes = iteration(before, p, r)
            for i in range(results):
                address = p.dst + 4 * results * r * p.strides.dst_rep + 4 * i
                f32(image, address, 1)[0] = pair_tree(lanes[group * i : group * (i + 1)])

    return want


def want_duplicate(image: np.ndarray, p: Operands) -> None:
    f32(image, p.dst, p.count)[:] = np.float32(p.scalar)


def want_value(image: np.ndarray, p: Operands) -> None:
    f32(image, p.dst, p.repeat + 1)[p.repeat] = f32(image, p.src0, p.count + 1)[p.count]


def want_nothing(image: np.ndarray, p: Operands) -> None:
    pass


ORACLES = {
    "add": want_binary(lambda x, y: x + y),
    "sub": want_binary(lambda x, y: x - y),
    "mul": want_binary(lambda x, y: x * y),
    "adds": want_unary(lambda x, s: x + s),
    "muls": want_unary(lambda x, s: x * s),
    "copy": want_unary(lambda x, s: x),
    "duplicate": want_duplicate,
    "add_repeat": want_add_repeat,
    "whole_reduce_sum": want_reduce(64),
    "block_reduce_sum": want_reduce(8),
    "pair_reduce_sum": want_reduce(2),
    "reg_reduce_sum": want_reduce(64),
    "get_value": want_value,
    "set_value": want_value,
    "set_flag": want_nothing,
    "wait_flag": want_nothing,
    "pipe_barrier": want_nothing,
    "sync_all": want_nothing,
    "init_buffer": want_nothing,
}
"""What each instruction that leaves GM alone does to the image. Cast and the copies have tests of their own."""


def check(name: str, image: np.ndarray, **operands: Any) -> Run:
    """The instruction does what its oracle does, and nothing else."""
    got, _, run = execute(name, image, **operands)
    want = image.copy()
    with np.errstate(all="ignore"):
        ORACLES[name](want, Operands(**operands))
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), err_msg=f"{name} {operands}")
    return run


# ---- the table


EXAMPLES: dict[str, dict[str, Any]] = {name: {} for name in OPS} | {
    "cast": {"repeat": FLOAT_TO_HALF},
    "get_value": {"count": 3, "repeat": 5},
    "set_value": {"count": 3, "repeat": 5},
    "set_flag": {"count": int(HardEvent.MTE3_V), "repeat": 7},
    "wait_flag": {"count": int(HardEvent.MTE3_V), "repeat": 7},
    "pipe_barrier": {"count": int(Pipe.VECTOR)},
    "data_copy_in": {"count": 8},
    "data_copy_out": {"count": 8},
}
"""Operands with which each instruction of the table is executed at least once."""


@pytest.mark.jitless
def test_this_file_executes_every_instruction():
    assert {row.name for row in INSTRUCTIONS.values()} == set(EXAMPLES)
    tested_alone = {"cast", "data_copy_in", "data_copy_out", "data_copy_pad_in", "data_copy_pad_out", "nddma_copy_in"}
    assert set(ORACLES) | tested_alone == set(EXAMPLES)


@pytest.mark.parametrize("opcode", sorted(INSTRUCTIONS))
def test_row_of_the_table(opcode):
    row = INSTRUCTIONS[opcode]
    assert row.opcode == opcode
    assert row.doc and "\n\n" not in row.doc and len(row.doc) <= 120
    assert row.mnemonic and row.ascend_c
    assert row.archs and set(row.archs) <= {1001, 2201, 3510} and 3510 in row.archs
    assert row.pipe is None or row.pipe in Pipe


def test_opcodes_and_names_are_unique():
    rows = list(INSTRUCTIONS.values())
    assert len({row.name for row in rows}) == len(rows) == len(INSTRUCTIONS)


def test_architectures_that_lack_an_instruction():
    """DataCopyPad, BlockReduceSum and PairReduceSum in fp32 are not on 910A; NDDMA and Reg:: only on 950."""
    lacks = {row.name for row in INSTRUCTIONS.values() if 1001 not in row.archs}
    assert {"data_copy_pad_in", "data_copy_pad_out", "block_reduce_sum", "pair_reduce_sum"} <= lacks
    assert {row.name for row in INSTRUCTIONS.values() if row.archs == (3510,)} == {"nddma_copy_in", "reg_reduce_sum"}


@pytest.mark.jitless
@pytest.mark.parametrize("name", OPS)
def test_one_event_for_each_execution(name):
    gm = revealing(64)
    image, _, run = execute(name, image_of(), gm, **EXAMPLES[name])
    assert run.events.dtype == EVENT
    opcode = next(op for op, row in INSTRUCTIONS.items() if row.name == name)
    own = {"init_buffer": 1, "data_copy_in": 1, "data_copy_out": 1}.get(name, 0)
    assert run.counts[0, opcode, 0] == 1 + own == (run.events["opcode"] == opcode).sum()
    event = event_of(run, name)
    row = INSTRUCTIONS[opcode]
    if row.pipe is not None:
        assert event["pipe"] == row.pipe
    assert event["core"] == 0 and event["tile"] == -1
    source = Path(bench.path).read_text(encoding="utf-8").splitlines()
    assert f"{name}(" in source[event["line"] - 1]
    if name in ORACLES:
        want = image_of()
        with np.errstate(all="ignore"):
            ORACLES[name](want, Operands(**EXAMPLES[name]))
        np.testing.assert_array_equal(image, want)


# ---- element-wise


@FEW
@given(
    name=st.sampled_from(["add", "sub", "mul"]), count=st.integers(0, 1024), seed=st.integers(0, 99),
    blocks=st.tuples(st.integers(0, 128), st.integers(128, 256), st.integers(256, 384)),
    order=st.permutations(range(3)),
)  # fmt: skip
def test_binary(name, count, seed, blocks, order):
    dst, src0, src1 = (32 * blocks[i] for i in order)
    apart = min(abs(dst - src0), abs(dst - src1)) // 4
    check(name, image_of(seed), dst=dst, src0=src0, src1=src1, count=min(count, apart))


@pytest.mark.jitless
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("same", [("src0",), ("src1",), ("src0", "src1")], ids="-".join)
def test_binary_in_place(name, same):
    check(name, image_of(1), count=70, **{source: 0 for source in same})


@pytest.mark.jitless
@pytest.mark.parametrize("name", ["adds", "muls", "duplicate"])
@pytest.mark.parametrize("scalar", [0.1, -(2.0**24), 1e-40, -0.0, 1e300, 16777217.0])
def test_scalar_forms_round_the_scalar_to_fp32_first(name, scalar):
    if scalar == 1e300:
        scalar = float(np.finfo(np.float32).max)
    check(name, image_of(2), count=131, scalar=scalar)


@FEW
@given(count=st.integers(0, 1024), dst=st.integers(0, 128), src=st.integers(128, 256))
def test_copy(count, dst, src):
    check("copy", image_of(3), dst=32 * dst, src0=32 * src, count=min(count, 8 * (src - dst)))
    check("copy", image_of(3), dst=32 * src, src0=32 * src, count=count)


@pytest.mark.jitless
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_special_values(name):
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, 1.0], np.float32)
    a, b = (v.reshape(-1).astype(np.float32) for v in np.meshgrid(special, special))
    image = np.zeros(IMAGE_BYTES, np.uint8)
    f32(image, 4096, a.size)[:], f32(image, 8192, b.size)[:] = a, b
    got, _, _ = execute(name, image, count=a.size)
    with np.errstate(all="ignore"):
        want = {"add": a + b, "sub": a - b, "mul": a * b}[name]
    result = f32(got, 0, a.size)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(result), nan)
    np.testing.assert_array_equal(result.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


def test_subnormals_are_kept():
    image = np.zeros(IMAGE_BYTES, np.uint8)
    f32(image, 4096, 8)[:], f32(image, 8192, 8)[:] = 1e-38, -0.9e-38
    got, _, _ = execute("add", image, count=8)
    want = np.float32(1e-38) + np.float32(-0.9e-38)
    assert 0 < want < 1.1754944e-38 and (f32(got, 0, 8) == want).all()


# ---- mask and repeat


def strides_that_fit(draw: Any, mask: int, repeat: int, room: int) -> tuple[int, int]:
    """A block and a repeat stride with which an operand stays within ``room`` bytes."""
    blocks = room // 32
    blk = draw(st.integers(1, max(1, min(255, (blocks - 1) // 8))))
    used = (mask - 1) // 8 * blk + 1
    rep = draw(st.integers(0, min(255, (blocks - used) // max(repeat - 1, 1))))
    return blk, rep


@st.composite
def repeats(draw, operands: int):
    mask, repeat = draw(st.integers(1, 64)), draw(st.integers(1, 12))
    strides = [strides_that_fit(draw, mask, repeat, 4096) for _ in range(operands)]
    return mask, repeat, strides


@settings(max_examples=60)
@given(case=repeats(3), seed=st.integers(0, 99))
def test_add_repeat(case, seed):
    mask, repeat, ((d_blk, d_rep), (a_blk, a_rep), (b_blk, b_rep)) = case
    strides = Strides(d_blk, a_blk, b_blk, d_rep, a_rep, b_rep)
    check("add_repeat", image_of(seed), count=mask, repeat=repeat, strides=strides)


@pytest.mark.jitless
@pytest.mark.parametrize("mask", [1, 7, 8, 9, 33, 64])
def test_add_repeat_accumulates_into_one_iteration(mask):
    """dst == src1 with repeat stride 0: the accumulate idiom, in order of the iterations."""
    strides = Strides(1, 1, 1, 0, 8, 0)
    check("add_repeat", image_of(4), dst=0, src0=4096, src1=0, count=mask, repeat=6, strides=strides)


def test_add_repeat_of_no_iteration_does_nothing():
    check("add_repeat", image_of(5), repeat=0)


# ---- reductions


REDUCTIONS = {"whole_reduce_sum": 1, "block_reduce_sum": 8, "pair_reduce_sum": 32}


@settings(max_examples=90)
@given(name=st.sampled_from(sorted(REDUCTIONS)), case=repeats(1), seed=st.integers(0, 99), data=st.data())
def test_reductions(name, case, seed, data):
    mask, repeat, ((blk, rep),) = case
    most = (1000 // REDUCTIONS[name] - 1) // max(repeat - 1, 1)
    dst_rep = data.draw(st.integers(1, max(1, min(40, most))))
    strides = Strides(1, blk, 0, dst_rep, rep, 0)
    check(name, image_of(seed), count=mask, repeat=repeat, strides=strides)


@pytest.mark.jitless
@pytest.mark.parametrize("name", [*REDUCTIONS, "reg_reduce_sum"])
@pytest.mark.parametrize("mask", [1, 2, 8, 9, 16, 24, 31, 32, 40, 56, 63, 64])
def test_partial_masks(name, mask):
    image = np.full(IMAGE_BYTES // 4, np.nan, np.float32)  # a lane past the mask that is read shows
    image[1024 : 1024 + mask] = revealing(mask, mask)
    check(name, image.view(np.uint8), count=mask)


@pytest.mark.jitless
def test_the_register_tree_is_adjacent_pairs_and_nothing_else():
    big, one = np.float32(2**24), np.float32(1)
    for lanes, tree in (
        ([big, one, -big, one], (big + one) + (-big + one)),  # 2 with halving: (big - big) + (1 + 1)
        ([big, -big, one, one], (big + -big) + (one + one)),
    ):
        image = np.zeros(IMAGE_BYTES // 4, np.float32)
        image[1024:1088] = 0
        image[1024 : 1024 + 4] = lanes
        for name in ("whole_reduce_sum", "reg_reduce_sum", "block_reduce_sum"):
            got, _, _ = execute(name, image.view(np.uint8), count=64)
            assert f32(got, 0, 1)[0] == tree
    assert (big + one) + (-big + one) != (big + -big) + (one + one)


def test_whole_reduce_sum_results_may_follow_each_other_and_need_no_block_alignment():
    for repeat in (1, 5, 255):
        strides = Strides(1, 1, 0, 1, 1, 0)
        check("whole_reduce_sum", image_of(6), dst=12, src0=4096, count=64, repeat=repeat, strides=strides)


def test_sum_of_negative_zeros_is_positive_with_masked_lanes():
    """Masked lanes count as +0 (reduce_spec 4.3), so -0 + +0 = +0; a full register of -0 stays -0."""
    image = np.full(IMAGE_BYTES // 4, -0.0, np.float32).view(np.uint8)
    for mask, sign in ((32, False), (63, False), (64, True)):
        got, _, _ = execute("reg_reduce_sum", image, count=mask)
        assert bool(np.signbit(f32(got, 0, 1)[0])) is sign


# ---- Cast


def candidates(dtype: np.dtype) -> np.ndarray:
    """All finite values of a 16-bit format, ascending, without -0."""
    with np.errstate(invalid="ignore"):
        values = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def rounded(x: float, grid: np.ndarray, mode: int) -> float:
    """One value rounded to a grid, by comparing exact distances."""
    above = int(np.searchsorted(grid, x))
    if grid[above] == x:
        return float(grid[above])
    low, high = grid[above - 1], grid[above]
    nearer = Fraction(float(x)) * 2 - Fraction(float(low)) - Fraction(float(high))
    even_low = (above - 1 - int(np.searchsorted(grid, 0.0))) % 2 == 0
    away = high if x > 0 else low
    odd = high if even_low else low
    if mode in (0, 1):
        return float(high if nearer > 0 or (nearer == 0 and not even_low) else low)
    if mode == 4:
        return float(away if nearer == 0 else high if nearer > 0 else low)
    return float({2: low, 3: high, 5: high if x < 0 else low, 6: odd}[mode])


@pytest.mark.jitless
@pytest.mark.parametrize("mode", range(7))
@pytest.mark.parametrize(
    ("pair", "dtype"),
    [(FLOAT_TO_HALF, np.dtype(np.float16)), (FLOAT_TO_BFLOAT16, np.dtype(ml_dtypes.bfloat16))],
    ids=["half", "bfloat16"],
)
def test_narrowing_casts(pair, dtype, mode):
    grid = candidates(dtype)
    rng = np.random.default_rng(mode)
    at_random = rng.choice(grid[1:-1].astype(np.float32), 60)
    step = np.array([np.nextafter(v, np.float32(np.inf)) for v in at_random[:20]], np.float32)
    index = rng.integers(1, grid.size - 2, 40)
    midpoints = ((grid[index] + grid[index + 1]) / 2).astype(np.float32)
    tiny = np.array([grid[grid > 0][0] / 2, grid[grid > 0][0] / 4, -grid[grid > 0][0] / 2], np.float32)
    values = np.concatenate([at_random, step, midpoints, -midpoints, tiny]).astype(np.float32)
    image = np.zeros(IMAGE_BYTES, np.uint8)
    f32(image, 4096, values.size)[:] = values
    got, _, _ = execute("cast", image, repeat=pair, mode=mode, count=values.size)
    result = got[: 2 * values.size].view(dtype).astype(np.float64)
    want = [rounded(float(v), grid, mode) for v in values]
    np.testing.assert_array_equal(result, want)
    assert (got[2 * values.size : 4096] == 0).all(), "wrote past the last element"


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("pair", "dtype"),
    [(HALF_TO_FLOAT, np.dtype(np.float16)), (BFLOAT16_TO_FLOAT, np.dtype(ml_dtypes.bfloat16))],
    ids=["half", "bfloat16"],
)
def test_widening_casts_are_exact(pair, dtype):
    bits = np.r_[np.arange(0, 1 << 16, 97), 0, 1, 0x8000, 0x8001, 0x7C00, 0x7F80, 0xFC00, 0xFF80].astype(np.uint16)
    with np.errstate(invalid="ignore"):
        want = bits.view(dtype).astype(np.float32)
    image = np.zeros(IMAGE_BYTES, np.uint8)
    image[4096 : 4096 + bits.nbytes] = bits.view(np.uint8)
    got, _, _ = execute("cast", image, repeat=pair, mode=0, count=bits.size)
    result = f32(got, 0, bits.size)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(result), nan)
    np.testing.assert_array_equal(result.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.jitless
@pytest.mark.parametrize(
    ("chip", "want"),
    [
        ("950", [np.inf, -np.inf, np.inf, np.nan]),
        ("A2", [np.inf, -np.inf, np.inf, np.nan]),
        ("910", [65504, -65504, 65504, 0]),
    ],
)
def test_cast_overflow_is_the_products(chip, want):
    """infnan keeps infinities and NaN; saturation gives the largest finite value, and 0 for NaN (ascend_facts 3.3)."""
    image = np.zeros(IMAGE_BYTES, np.uint8)
    f32(image, 4096, 4)[:] = [1e6, -1e6, np.inf, np.nan]
    got, _, _ = execute("cast", image, product=products.get(chip), repeat=FLOAT_TO_HALF, mode=1, count=4)
    np.testing.assert_array_equal(got[:8].view(np.float16).astype(np.float32), np.array(want, np.float32))


# ---- copies


def gm_of(itemsize: int, count: int = 600) -> np.ndarray:
    if itemsize == 4:
        return revealing(count, 7)
    return np.random.default_rng(7).integers(0, 1 << 16, count).astype(np.uint16)


@pytest.mark.jitless
@pytest.mark.parametrize("itemsize", [4, 2])
@pytest.mark.parametrize(("offset", "blocks"), [(0, 0), (0, 1), (3, 1), (5, 37), (0, 16)])
def test_data_copy(itemsize, offset, blocks):
    gm, count = gm_of(itemsize), 32 * blocks // itemsize
    image, after, run = execute("data_copy_in", image_of(), gm, dst=64, offset=offset, count=count)
    want = image_of()
    want[64 : 64 + 32 * blocks] = gm[offset : offset + count].view(np.uint8)
    np.testing.assert_array_equal(image, want)
    np.testing.assert_array_equal(after, gm)
    event = event_of(run, "data_copy_in")
    assert event["bytes"] == 32 * blocks and event["src0"] == run.gm["gm"][0] + offset * itemsize

    image, after, _ = execute("data_copy_out", image_of(), gm, src0=96, offset=offset, count=count)
    want_gm = gm.copy()
    want_gm[offset : offset + count] = image_of()[96 : 96 + 32 * blocks].view(gm.dtype)
    np.testing.assert_array_equal(after, want_gm)
    np.testing.assert_array_equal(image, image_of())


def want_pad_in(image: np.ndarray, gm: np.ndarray, p: Operands) -> None:
    """DataCopyPad GM to UB, byte by byte; rows of no length are no operation (ascend_facts 2.4)."""
    if p.rows.block_len == 0:
        return
    size, source = gm.itemsize, gm.view(np.uint8)
    d = p.dst
    for r in range(p.rows.block_count):
        start = p.offset * size + r * (p.rows.block_len + p.rows.src_stride)
        row = bytes(source[start : start + p.rows.block_len])
        bits = np.float32(p.pad.value) if size == 4 else np.uint16(p.pad.value)
        filler = bits.tobytes() if p.pad.is_pad else row[:size]
        line = p.pad.left * filler + row + p.pad.right * filler
        while len(line) % 32:
            line += filler
        image[d : d + len(line)] = np.frombuffer(line, np.uint8)
        d += len(line) + 32 * p.rows.dst_stride


def want_pad_out(image: np.ndarray, gm: np.ndarray, p: Operands) -> None:
    """DataCopyPad UB to GM: exactly blockLen bytes of each row arrive."""
    target, size = gm.view(np.uint8), gm.itemsize
    for r in range(p.rows.block_count):
        s = p.src0 + r * (-(-p.rows.block_len // 32) * 32 + 32 * p.rows.src_stride)
        d = p.offset * size + r * (p.rows.block_len + p.rows.dst_stride)
        target[d : d + p.rows.block_len] = image[s : s + p.rows.block_len]


def check_pad(name: str, itemsize: int, **operands: Any) -> Run:
    gm, image = gm_of(itemsize), image_of(8)
    got_image, got_gm, run = execute(name, image, gm, **operands)
    want_image, want_gm = image.copy(), gm.copy()
    {"data_copy_pad_in": want_pad_in, "data_copy_pad_out": want_pad_out}[name](
        want_image, want_gm, Operands(**operands)
    )
    np.testing.assert_array_equal(got_image, want_image)
    np.testing.assert_array_equal(got_gm.view(np.uint8), want_gm.view(np.uint8))
    return run


@settings(max_examples=80)
@given(
    itemsize=st.sampled_from([4, 2]), rows=st.integers(1, 6), length=st.integers(1, 40), gm_gap=st.integers(0, 40),
    ub_gap=st.integers(0, 5), offset=st.integers(0, 40), pad=st.integers(0, 2), left=st.integers(0, 8),
    right=st.integers(0, 8), value=st.sampled_from([0.0, 1.0, 2.0, 1024.0]),
)  # fmt: skip
def test_data_copy_pad(itemsize, rows, length, gm_gap, ub_gap, offset, pad, left, right, value):
    padding = PadParams(1, left, right, value) if pad else NO_PAD
    inbound = CopyParams(rows, length * itemsize, gm_gap * itemsize, ub_gap)
    check_pad("data_copy_pad_in", itemsize, dst=128, offset=offset, rows=inbound, pad=padding)
    outbound = CopyParams(rows, length * itemsize, ub_gap, gm_gap * itemsize)
    check_pad("data_copy_pad_out", itemsize, src0=4096, offset=offset, rows=outbound)


@pytest.mark.jitless
@pytest.mark.parametrize("itemsize", [4, 2])
@pytest.mark.parametrize("pad", [NO_PAD, PadParams(1, 0, 0, 7.0), PadParams(1, 3, 0, 7.0), PadParams(1, 2, 5, 7.0)])
def test_data_copy_pad_fillers(itemsize, pad):
    """Without isPad the filler up to 32 bytes is the row's first element."""
    run = check_pad("data_copy_pad_in", itemsize, offset=1, rows=CopyParams(3, 5 * itemsize, itemsize, 1), pad=pad)
    assert event_of(run, "data_copy_pad_in")["bytes"] == 15 * itemsize


@pytest.mark.jitless
@pytest.mark.parametrize("name", ["data_copy_pad_in", "data_copy_pad_out"])
def test_data_copy_pad_of_nothing_does_nothing(name):
    for rows in (CopyParams(0, 32, 0, 0), CopyParams(3, 0, 4, 1)):
        check_pad(name, 4, rows=rows, pad=PadParams(1, 1, 1, 9.0))


@pytest.mark.jitless
def test_data_copy_pad_out_writes_exactly_block_len():
    for length in (1, 7, 8, 9):
        run = check_pad("data_copy_pad_out", 4, offset=2, src0=0, rows=CopyParams(2, 4 * length, 0, 4))
        assert event_of(run, "data_copy_pad_out")["bytes"] == 8 * length


@settings(max_examples=40)
@given(
    itemsize=st.sampled_from([4, 2]), outer=st.integers(1, 4), inner=st.integers(1, 5), length=st.integers(1, 7),
    slack=st.integers(0, 3), rest=st.integers(0, 20), gm_gap=st.integers(0, 6), offset=st.integers(0, 9),
)  # fmt: skip
def test_nddma(itemsize, outer, inner, length, slack, rest, gm_gap, offset):
    nd = NddmaParams(
        outer,
        inner * (length + gm_gap) + 1,
        inner * (length + slack) + rest,
        inner,
        length + gm_gap,
        length + slack,
        length,
    )
    gm, image = gm_of(itemsize), image_of(9)
    got, after, run = execute("nddma_copy_in", image, gm, dst=32, offset=offset, nd=nd)
    want = image.copy()
    place = want[32 : 32 + nd.outer * nd.outer_dst * itemsize].view(gm.dtype).reshape(nd.outer, nd.outer_dst)
    place[:] = 0
    for o in range(outer):
        for j in range(inner):
            s = offset + o * nd.outer_src + j * nd.inner_src
            place[o, j * nd.inner_dst : j * nd.inner_dst + length] = gm[s : s + length]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(after, gm)
    assert event_of(run, "nddma_copy_in")["bytes"] == outer * inner * length * itemsize


# ---- scalar unit and synchronisation


@pytest.mark.jitless
@pytest.mark.parametrize(("index_from", "index_to"), [(0, 0), (1, 9), (1023, 1023), (7, 0)])
def test_get_and_set_value(index_from, index_to):
    check("set_value", image_of(10), count=index_from, repeat=index_to)


def test_flags_name_their_pipes():
    pipes = {"S": Pipe.SCALAR, "V": Pipe.VECTOR, "MTE2": Pipe.MTE2, "MTE3": Pipe.MTE3}
    for event in HardEvent:
        for event_id in (0, CHIP.event_ids - 1):
            _, _, run = execute("set_flag", image_of(), count=int(event), repeat=event_id)
            source, destination = event.name.split("_")
            raised, waited = event_of(run, "set_flag"), event_of(run, "wait_flag")
            assert (raised["pipe"], waited["pipe"]) == (pipes[source], pipes[destination])
            assert raised["flag"] == waited["flag"] == 8 * event + event_id


@pytest.mark.parametrize("pipe", list(Pipe))
def test_barrier_names_its_pipe(pipe):
    _, _, run = execute("pipe_barrier", image_of(), count=int(pipe))
    assert event_of(run, "pipe_barrier")["pipe"] == pipe


def test_sync_all_meets_once():
    _, _, run = execute("sync_all", image_of())
    assert run.sync_rounds == 1
    assert event_of(run, "sync_all")["pipe"] == Pipe.ALL


@pytest.mark.jitless
@pytest.mark.parametrize(("asked", "given_bytes"), [(1, 32), (32, 32), (33, 64), (100, 128)])
def test_init_buffer_rounds_up_to_blocks(asked, given_bytes):
    _, _, run = execute("init_buffer", image_of(), count=asked)
    assert [(b.name, b.address, b.bytes) for b in run.buffers] == [
        ("image", 0, IMAGE_BYTES),
        ("more", IMAGE_BYTES, given_bytes),
    ]
    assert event_of(run, "init_buffer")["bytes"] == given_bytes
