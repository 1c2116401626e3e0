"""Both engines and the oracle give the same bits: outputs, sums and every per-core partial sum.

The oracle (tests/naive.py) shares no code with the product. The data shows the order of the additions: a tree
with one pair exchanged gives other bits, which the second part of this file proves for each part of the tree.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import naive
import ops
from emulator import GlobalMemory, Schedule, exhaustive, launch, products
from emulator.products import Product
from ops.reduce_sum.kernel import reduce_sum

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
OUTPUTS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
LENGTHS = (
    1,
    1,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    11,
    13,
    16,
    17,
    31,
    32,
    37,
    61,
    64,
    67,
    127,
    128,
    131,
    256,
    257,
    509,
    512,
    1021,
    1024,
)
"""Lengths of axes: 1, primes and powers of two; longer ones are made in `shapes`."""

NAMED = ("950", "A2", "Ascend910A")


@dataclass(frozen=True)
class Case:
    """What a test runs: the arrays follow from the seed."""

    shape: tuple[int, ...]
    dtype: str
    machine: Product
    seed: int
    special: bool

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        dtype = DTYPES[self.dtype]
        g, x = (revealing(rng, self.shape, dtype, self.special) for _ in range(2))
        channels = self.shape[1]
        mean, invstd = rng.normal(size=channels), rng.uniform(0.1, 30, channels)
        return g, x, mean.astype(np.float32), invstd.astype(np.float32)


def revealing(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, special: bool) -> np.ndarray:
    """Values of mixed magnitudes that cancel, with zeros of both signs and subnormal numbers.

    With ``special`` also numbers that drown all others or overflow, infinities and NaN.
    """
    values = rng.normal(size=shape) * 2.0 ** rng.integers(-8, 12, shape)
    wide = rng.random(shape) < 0.4
    pool = np.array([2.0**24, -(2.0**24), 1, -1, 3, 0.1, 2.0**-20, 0.0, -0.0, 1e-40])
    values[wide] = rng.choice(pool, int(wide.sum()))
    if dtype != np.float32:
        values = np.clip(values, -6e4, 6e4)
        values[rng.random(shape) < 0.05] = 2.0 ** (-24 if dtype == np.float16 else -133)
    if special:
        count = max(1, values.size // 300)
        pool = np.array([np.inf, -np.inf, np.nan, -0.0, 1e30, -1e30, 3e38, -3e38])
        values.reshape(-1)[rng.integers(0, values.size, count)] = rng.choice(pool, count)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@st.composite
def shapes(draw, most: int) -> tuple[int, ...]:
    """Rank 2 to 8, at most ``most`` elements in all."""
    rank = draw(st.sampled_from([2, 2, 3, 4, 4, 5, 6, 7, 8]))
    order = draw(st.permutations(range(rank)))
    dims, room = [1] * rank, most
    for axis in order:
        fits = [n for n in LENGTHS if n <= room]
        length = draw(st.sampled_from(fits) | st.integers(1, min(room, 300)))
        dims[axis], room = length, room // length
    axis = draw(st.integers(-2, rank - 1))
    if axis >= 0:  # let one axis use up the room
        dims[axis] *= draw(st.integers(1, max(1, min(room, 4096))))
    return tuple(dims)


@st.composite
def machines(draw) -> Product:
    product = products.get(draw(st.sampled_from(NAMED)))
    if draw(st.booleans()):
        return product
    ub_bytes = draw(st.sampled_from([16, 20, 24, 32, 48, 64, 96, 128, 192, 248, 256]) | st.integers(16, 256)) * 1024
    return product.replace(vector_cores=draw(st.integers(1, 100)), ub_bytes=ub_bytes)


@st.composite
def cases(draw, most: int) -> Case:
    machine = draw(machines())
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"]))
    if dtype not in machine.dtypes:
        dtype = "float16"
    return Case(draw(shapes(most)), dtype, machine, draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 3)) == 0)


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal dtype, shape and bits; any NaN equals any other."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    with np.errstate(invalid="ignore"):
        nan = np.isnan(want.astype(np.float32))
        got_nan = np.isnan(got.astype(np.float32))
    bits = f"u{got.itemsize}"
    return np.array_equal(nan, got_nan) and np.array_equal(
        np.ascontiguousarray(got).view(bits)[~nan], np.ascontiguousarray(want).view(bits)[~nan]
    )


def assert_same_run(a: ops.BatchNormGrads, b: ops.BatchNormGrads, what: str) -> None:
    """Outputs, fp32 sums and partial sums of two results, bit for bit."""
    for name in OUTPUTS:
        assert same_bits(getattr(a, name), getattr(b, name)), f"{name}: {what}"
    for kind in ("sums", "partials"):
        one, other = getattr(a.run, kind), getattr(b.run, kind)
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), f"{kind} {name}: {what}"


def want_of(case: Case) -> dict[str, np.ndarray] | None:
    """The oracle's answer; None when the machine is too small."""
    try:
        return naive.batch_norm_reduce_backward(*case.arrays(), case.machine.vector_cores, case.machine.ub_bytes)
    except ValueError:
        return None


def both(case: Case, **options: Any) -> tuple[ops.BatchNormGrads, ops.BatchNormGrads] | None:
    """Results of both engines, or None when both refuse the machine with one text."""
    results, errors = [], []
    for engine in ("fast", "instruction"):
        try:
            more = options if engine == "instruction" else {}
            results.append(ops.batch_norm_reduce_backward(*case.arrays(), product=case.machine, engine=engine, **more))
        except ops.TilingError as error:
            errors.append(str(error))
    assert (len(results), len(errors)) in ((2, 0), (0, 2)) and len(set(errors)) <= 1, f"{case} {errors}"
    return tuple(results) if results else None


def check(case: Case, **options: Any) -> bool:
    """Both engines and the oracle agree on one case. Returns whether the machine could run it."""
    results, want = both(case, **options), want_of(case)
    if results is None or want is None:
        if len(naive.canonical(case.shape)) > 1:
            assert (results is None) == (want is None), f"refused by one side only: {case}"
        return False
    fast, instruction = results
    assert_same_run(fast, instruction, f"engines differ: {case}")
    for name in ("sum_dy", "sum_dy_x", "sum_dy_xmu", "grad_weight"):
        assert same_bits(fast.run.sums[name], want[name]), f"{name}: oracle differs: {case}"
    for name, key in (("sum_dy", "partials_dy"), ("sum_dy_x", "partials_dy_x")):
        assert same_bits(fast.run.partials[name], want[key]), f"partials {name}: oracle differs: {case}"
    if case.dtype == "float32":
        for name in OUTPUTS:
            assert same_bits(getattr(fast, name), want[name]), f"{name}: oracle differs: {case}"
    return True


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(20_000))
def test_engines_and_oracle_agree(case):
    check(case)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(3_000), seed=st.integers(0, 2**32 - 1))
def test_arrival_orders_change_nothing(case, seed):
    check(case, schedule=Schedule(seed=seed))


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases(1_000_000))
def test_engines_and_oracle_agree_on_large_shapes(case):
    check(case)


# Shapes that reach each branch of tiling and kernels, whatever Hypothesis finds. (shape, product, cores, UB KiB)
BRANCHES = [
    ((4, 2), "950", None, None),  # NDDMA, halving
    ((2, 3, 4, 5), "950", None, None),  # padded rows, masked register
    ((3, 5, 7), "950", None, None),  # K = 24
    ((1, 9, 5), "950", None, None),  # K = 8
    ((2, 7, 8), "950", None, None),  # K = 16
    ((1, 1, 1000), "950", None, None),
    ((37, 129), "950", None, None),  # tail tile of another width
    ((64, 48), "A2", None, None),  # 16 consecutive rows
    ((300, 40), "A2", 30, 64),  # group reduce, rows
    ((100, 200), "950", 10, 32),
    ((1, 3, 5000), "950", 40, 48),  # group reduce, channels
    ((12, 5, 9, 11), "Ascend910A", 7, 24),
    ((9, 70, 3), "950", None, None),
    ((1, 200), "950", None, None),  # nothing to reduce
    ((16, 1, 1, 33), "950", 3, 24),
    ((40, 300, 2), "950", 64, 40),
    ((700, 6), "950", 8, 32),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "product", "cores", "ub_kib"), BRANCHES, ids=lambda v: str(v))
def test_branches(shape, product, cores, ub_kib, dtype):
    machine = products.get(product)
    if cores is not None:
        machine = machine.replace(vector_cores=cores, ub_bytes=1024 * ub_kib)
    if dtype not in machine.dtypes:
        pytest.skip(f"{product} has no {dtype}")
    assert check(Case(shape, dtype, machine, seed=len(shape), special=False), schedule=Schedule(seed=1))


@pytest.mark.jitless
@pytest.mark.parametrize("engine", ["fast", "instruction"])
@pytest.mark.parametrize("shape", [(4, 2), (2, 3, 4, 5), (5, 3, 3), (40, 9), (1, 2, 70)], ids=str)
def test_small_cases_give_the_oracles_bits(shape, engine):
    """Run again without JIT and with bounds checks by .ci/run; group reduce and tail tiles on a small machine."""
    machine = products.get("950").replace(vector_cores=3, ub_bytes=24576)
    case = Case(shape, "float32", machine, seed=9, special=False)
    got = ops.batch_norm_reduce_backward(*case.arrays(), product=machine, engine=engine)
    want = want_of(case)
    for name in OUTPUTS:
        assert same_bits(getattr(got, name), want[name]), name
    assert same_bits(got.run.partials["sum_dy"], want["partials_dy"])


@pytest.mark.parametrize("special", [False, True])
def test_special_values_meet_in_every_order(special):
    """Infinities of both signs, NaN, zeros of both signs and subnormals only."""
    machine = products.get("950").replace(vector_cores=8, ub_bytes=32768)
    rng = np.random.default_rng(2)
    pool = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-39, *([np.inf, -np.inf, np.nan] if special else [])], np.float32)
    for shape in ((40, 9), (3, 5, 7), (2, 2, 900)):
        g, x = rng.choice(pool, shape), rng.choice(pool, shape)
        mean = rng.choice(pool, shape[1])
        one = np.ones(shape[1], np.float32)
        fast, instruction = (
            ops.batch_norm_reduce_backward(g, x, mean, one, product=machine, engine=e) for e in ("fast", "instruction")
        )
        want = naive.batch_norm_reduce_backward(g, x, mean, one, 8, 32768)
        assert_same_run(fast, instruction, str(shape))
        assert all(same_bits(getattr(fast, n), want[n]) for n in OUTPUTS)


@pytest.mark.parametrize(
    ("shape", "ub_kib", "cores"), [((64, 64, 40), 16, 4), ((4, 4), 16, 1), ((3, 4096, 9), 17, 2), ((20000, 2), 18, 100)]
)
def test_a_ub_that_holds_no_tile_is_refused_alike(shape, ub_kib, cores):
    machine = products.get("950").replace(vector_cores=cores, ub_bytes=1024 * ub_kib)
    case = Case(shape, "float32", machine, 1, False)
    assert (both(case) is None) == (want_of(case) is None)
    if ub_kib == 16:
        assert both(case) is None


GROUPED = Case((60, 5), "float32", products.get("950").replace(vector_cores=4, ub_bytes=24576), 4, False)
"""Four cores share one A tile."""


def test_all_orders_of_four_cores():
    plan = ops.plan_reduce_sum(GROUPED.shape, product=GROUPED.machine)
    assert plan.cores == plan.group_r == 4
    want = want_of(GROUPED)
    for schedule in exhaustive(4):
        memory = GlobalMemory()
        x, out = memory.bind("x", GROUPED.arrays()[0].copy()), memory.alloc("out", 5)
        workspace = memory.alloc("workspace", 4 * 64)
        run = launch(reduce_sum, 4, x, out, workspace, plan.geometry, product=GROUPED.machine, schedule=schedule)
        assert run.sync_rounds == 1 and run.schedule == schedule.label
        assert same_bits(memory["out"], want["sum_dy"])
        assert same_bits(memory["workspace"].reshape(4, 64)[:, :5], want["partials_dy"])


def test_a_listed_order_for_the_operator():
    ops.batch_norm_reduce_backward(
        *GROUPED.arrays(), product=GROUPED.machine, engine="instruction", schedule=Schedule(order=(3, 1, 0, 2))
    )


THREADS = """
import os
os.cpu_count = lambda: {cpus}
import numpy as np, ops
for shape in ((32, 64, 25, 25), (9000, 150), (1, 2, 700_000)):
    g = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    one = np.ones(shape[1], np.float32)
    r = ops.batch_norm_reduce_backward(g, g, one, one)
    print(r.sum_dy.tobytes().hex(), r.sum_dy_xmu.tobytes().hex(), r.run.partials["sum_dy"].tobytes().hex())
"""


def test_threads_do_not_matter(tmp_path):
    """The fast engine shares large arrays between threads; how many CPUs there are changes no bit."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    texts = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", THREADS.format(cpus=cpus)],
            env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
        ).stdout
        for cpus in (1, 3, 16)
    ]  # fmt: skip
    assert texts[0].count("\n") == 3 and texts[0] == texts[1] == texts[2]


# ---- a mutated tree is caught


def swap(values: np.ndarray, i: int, j: int) -> np.ndarray:
    """Entries i and j of the first axis exchanged: one pair of the tree gets other members."""
    order = np.arange(len(values))
    order[[i, j]] = j, i
    return values[order]


def sequential(rows: np.ndarray) -> np.ndarray:
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


REAL_AR, REAL_RA, REAL_MERGE, REAL_HALVING = naive.in_tile_ar, naive.in_tile_ra, naive.merge_tiles, naive.stride_halving


def ar_one_pair_swapped(matrix: np.ndarray) -> np.ndarray:
    return REAL_AR(swap(matrix.T, 0, 1 if matrix.shape[1] > 64 else 2).T)


def ar_halving(matrix: np.ndarray) -> np.ndarray:
    """Stride-halving of the whole row, as another template does it, in place of 16 consecutive registers."""
    folded = naive.fold_tail(matrix.T)
    registers = folded.reshape(len(folded) // 64, 64, -1)
    return naive.pair_tree(REAL_HALVING(registers).T)


def ar_adjacent_pairs(matrix: np.ndarray) -> np.ndarray:
    """Adjacent pairs of the padded row all the way."""
    size = 1 << (matrix.shape[1] - 1).bit_length()
    return naive.pair_tree(np.pad(matrix, ((0, 0), (0, size - matrix.shape[1]))))


def ar_folded_register(matrix: np.ndarray) -> np.ndarray:
    """Fold the tail onto 32 lanes first, in place of the masked 64-lane register."""
    return naive.pair_tree(naive.fold_tail(matrix.T).T)


def ra_one_pair_swapped(matrix: np.ndarray, lanes: int) -> np.ndarray:
    return REAL_RA(swap(matrix, 0, 1), lanes)


def ra_adjacent_pairs(matrix: np.ndarray, lanes: int) -> np.ndarray:
    rows = naive.fold_tail(matrix)
    return naive.pair_tree(rows.T)


def ra_halving(matrix: np.ndarray, lanes: int) -> np.ndarray:
    return REAL_HALVING(naive.fold_tail(matrix))


def ra_consecutive(matrix: np.ndarray, lanes: int) -> np.ndarray:
    return naive.consecutive_groups(naive.fold_tail(matrix))


def ra_sequential(matrix: np.ndarray, lanes: int) -> np.ndarray:
    return sequential(matrix)


def merge_pairs_swapped(n: int, tile: Callable, in_tile: Callable) -> np.ndarray:
    """Tiles n - 1 and n - 2 exchanged: they join each other's partner."""
    exchanged = {n - 1: n - 2, n - 2: n - 1}
    return REAL_MERGE(n, lambda i: tile(exchanged.get(i, i)), in_tile)


def merge_without_pairing(n: int, tile: Callable, in_tile: Callable) -> np.ndarray:
    """Every tile is summed alone: the partner is added after, not before, the sum inside the tile."""
    pos = naive.nearest_power2(n)
    alone = [in_tile(tile(i)) for i in range(n)]
    return REAL_MERGE(pos, lambda i: alone[i] + alone[i + pos] if i < n - pos else alone[i], lambda v: v)


def merge_sequential(n: int, tile: Callable, in_tile: Callable) -> np.ndarray:
    """The leaves one after another in place of the binary cache."""
    pos = naive.nearest_power2(n)
    leaves = [in_tile(tile(i) + tile(i + pos)) if i < n - pos else in_tile(tile(i)) for i in range(pos)]
    return sequential(leaves)


def merge_leaves_swapped(n: int, tile: Callable, in_tile: Callable) -> np.ndarray:
    """Leaves 0 and 2 of the binary cache exchanged."""
    pos = naive.nearest_power2(n)
    leaves = [in_tile(tile(i) + tile(i + pos)) if i < n - pos else in_tile(tile(i)) for i in range(pos)]
    leaves[0], leaves[2] = leaves[2], leaves[0]
    while len(leaves) > 1:
        leaves = [leaves[i + 1] + leaves[i] for i in range(0, len(leaves), 2)]
    return leaves[0]


MUTANTS = [
    # name, what is replaced, by what, shape, cores, UB bytes, what the tiling must be for the mutant to matter
    ("AR: one pair of K = 72", "in_tile_ar", ar_one_pair_swapped, (3, 40, 24), 64, 253952, {"pattern": "ARAR"}),
    ("AR: halving for 16 registers", "in_tile_ar", ar_halving, (1, 64, 2048), 64, 253952, {"pattern": "AR"}),
    ("AR: adjacent pairs for K = 448", "in_tile_ar", ar_adjacent_pairs, (8, 64, 7, 7), 64, 253952, {"pattern": "ARAR"}),
    ("AR: one pair of K = 8", "in_tile_ar", ar_one_pair_swapped, (1, 60, 8), 64, 253952, {"pattern": "AR"}),
    ("AR: one pair of a masked register", "in_tile_ar", ar_one_pair_swapped, (2, 60, 20), 64, 253952, {}),
    ("AR: a folded register for K = 48", "in_tile_ar", ar_folded_register, (2, 60, 20), 64, 253952, {}),
    ("AR: adjacent pairs for K = 16", "in_tile_ar", ar_adjacent_pairs, (2, 60, 8), 64, 253952, {}),
    ("AR: adjacent pairs for K = 24", "in_tile_ar", ar_adjacent_pairs, (3, 60, 8), 64, 253952, {}),
    ("RA: adjacent pairs, a <= 32", "in_tile_ra", ra_adjacent_pairs, (64, 24), 64, 253952, {"pattern": "ARA"}),
    ("RA: one pair, a <= 32", "in_tile_ra", ra_one_pair_swapped, (48, 24), 64, 253952, {}),
    ("RA: halving, 32 < a <= 64", "in_tile_ra", ra_halving, (64, 56), 64, 253952, {}),
    ("RA: one pair, 32 < a <= 64", "in_tile_ra", ra_one_pair_swapped, (64, 56), 64, 253952, {}),
    ("RA: consecutive rows, a > 64", "in_tile_ra", ra_consecutive, (4096, 256), 64, 253952, {"group_r": 31}),
    ("RA: one pair, a > 64", "in_tile_ra", ra_one_pair_swapped, (4096, 256), 64, 253952, {"group_r": 31}),
    ("tiles: last two exchanged", "merge_tiles", merge_pairs_swapped, (32, 8, 56, 56), 8, 253952, {"group_r": 1}),
    ("tiles: summed alone, paired after", "merge_tiles", merge_without_pairing, (32, 8, 56, 56), 8, 253952, {}),
    ("tiles of rows: last two exchanged", "merge_tiles", merge_pairs_swapped, (4001, 8), 1, 65536, {"group_r": 1}),
    ("cache: sequential", "merge_tiles", merge_sequential, (32, 8, 56, 56), 8, 253952, {}),
    ("cache: two leaves exchanged", "merge_tiles", merge_leaves_swapped, (32, 8, 56, 56), 8, 253952, {}),
    ("cache of rows: sequential", "merge_tiles", merge_sequential, (8000, 8), 1, 65536, {"group_r": 1}),
    # Channels in stage 1 are summed by in_tile_ar, so only stage 2 of these uses in_tile_ra.
    ("combine: sequential", "in_tile_ra", ra_sequential, (1, 3, 200, 1000), 64, 253952, {"pattern": "AR"}),
    ("combine: one pair", "in_tile_ra", ra_one_pair_swapped, (32, 64, 56, 56), 48, 196608, {"group_r": 8}),
    (
        "combine: halving for 16 rows",
        "in_tile_ra",
        ra_halving,
        (97, 40, 64),
        100,
        196608,
        {"pattern": "ARAR", "group_r": 33},
    ),
]


def split_sums(case: Case) -> np.ndarray:
    return naive.reduce_sum(case.arrays()[0], case.machine.vector_cores, case.machine.ub_bytes)[0]


@pytest.mark.parametrize(
    ("name", "replaced", "mutant", "shape", "cores", "ub_bytes", "plan"), MUTANTS, ids=[m[0] for m in MUTANTS]
)
def test_a_mutated_tree_is_caught(name, replaced, mutant, shape, cores, ub_bytes, plan, monkeypatch):
    machine = products.get("950").replace(vector_cores=cores, ub_bytes=ub_bytes)
    case = Case(shape, "float32", machine, 3, False)
    tiling = naive.tiling(shape, cores, ub_bytes)
    assert {key: tiling[key] for key in plan} == plan
    if name.startswith("combine"):
        assert tiling["group_r"] > 2 and tiling["pattern"].endswith("R")
    g, x, mean, invstd = case.arrays()
    product = ops.batch_norm_reduce_backward(g, x, mean, invstd, product=machine).sum_dy
    assert same_bits(product, split_sums(case))
    monkeypatch.setattr(naive, replaced, mutant)
    assert not same_bits(product, split_sums(case)), f"{name}: the mutant gives the same bits"


# ---- with and without JIT


FINGERPRINTS = """
import numpy as np
import ml_dtypes
import ops
from emulator import products

machine = products.get("950").replace(vector_cores=3, ub_bytes=24576)
lines = []
for shape in ((4, 2), (2, 3, 4, 5), (3, 2, 7), (40, 9), (1, 2, 70), (1, 5)):
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        rng = np.random.default_rng(8)
        g = (rng.choice([2.0**15, 1, -(2.0**15), 1e-3, -0.0], shape) * rng.choice([1, 0.7], shape)).astype(dtype)
        x = rng.normal(size=shape).astype(dtype)
        m, s = rng.normal(size=shape[1]).astype(np.float32), rng.uniform(1, 2, shape[1]).astype(dtype)
        for engine in ("fast", "instruction"):
            r = ops.batch_norm_reduce_backward(g, x, m, s, product=machine, engine=engine)
            partials = [r.run.partials["sum_dy"], r.run.partials["sum_dy_x"]]
            parts = [r.sum_dy, r.sum_dy_xmu, r.grad_weight, r.grad_bias, *partials]
            lines.append(b"".join(a.tobytes() for a in parts).hex())
fingerprint = "\\n".join(lines)
"""


def without_jit(code: str, folder: Path) -> list[str]:
    """Lines a program prints when Numba compiles nothing; every warning is an error."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT), "AICORE_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_the_same_bits_without_jit(tmp_path):
    here: dict[str, Any] = {}
    exec(FINGERPRINTS, here)
    lines = here["fingerprint"].splitlines()
    assert without_jit(FINGERPRINTS + "print(fingerprint)", tmp_path) == lines
    assert lines[0::2] == lines[1::2], "the engines differ"


OVERFLOW = """
import numpy as np, ops
big = np.full((2, 2), 3e38, np.float32)
r = ops.batch_norm_reduce_backward(big, big, big[0], big[0], engine="{engine}", out_dtype="float16")
print(r.sum_dy.tolist(), r.grad_weight.tolist())
"""


@pytest.mark.parametrize("engine", ["fast", "instruction"])
def test_overflow_warns_of_nothing_without_jit(engine, tmp_path):
    assert without_jit(OVERFLOW.format(engine=engine), tmp_path) == ["[inf, inf] [nan, nan]"]
