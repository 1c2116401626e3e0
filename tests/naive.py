"""The oracle: the published reduction order written out plainly, straight from the specification.

Nothing here is shared with the product, and nothing here is fast. Section numbers in the docstrings are
those of the reduction specification ("reduce_spec 4.2" and so on). Canonical shapes alternate A (kept) and
R (reduced) axes and start with A, so an axis is A exactly when its index is even.

The order of additions is written once (sections 4.1 to 4.5), on NumPy arrays, with element-wise ``+`` only.
With float32 arrays it computes, one rounding per addition; with object arrays of `Node` it builds the
summation tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

FLOAT_BYTES = 4
ALIGN = 8  # elements in one 32-byte UB block
VL = 64  # elements in one 256-byte vector register
CHUNK = 64  # output positions in one stage-2 tile
CACHE_BUF_BYTES = 16384
MAX_INNER_A = 512 // FLOAT_BYTES
CACHE_LINE = 256 // FLOAT_BYTES
THRESHOLD = 0.95
A_STEP = 4
SYSTEM_WORKSPACE_BYTES = 16 * 1024 * 1024
MAX_FOLD = 32768

PRE_IN, PRE_REST, POST, RATIO = 4, 1, 2, 1  # buffer counts of the fp32 graph, section 3.2


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def floor_align(a: int, b: int) -> int:
    """Return the largest multiple of b that is not above a."""
    return a // b * b


def ceil_align(a: int, b: int) -> int:
    """Return the smallest multiple of b that is not below a."""
    return ceil_div(a, b) * b


def floor_power2(n: int) -> int:
    """Return the largest power of two that is not above n (n >= 1)."""
    return 1 << (n.bit_length() - 1)


# ----------------------------------------------------------------------------------------------------------
# Section 2.1: canonical shape


def canonical(shape: Sequence[int], axes_all_but: int = 1) -> list[int]:
    """Return the canonical shape for a sum over every axis but one (reduce_spec 2.1).

    Args:
        shape: the shape of the tensor, any rank above ``axes_all_but``.
        axes_all_but: the axis that is kept.

    Returns:
        The merged lengths, alternately A and R, starting with A. One entry (pattern A): nothing is reduced.
    """
    merged = [1]  # the prepended A
    kind = "A"
    for axis, length in enumerate(shape):
        axis_kind = "A" if axis == axes_all_but else "R"
        if length == 1:
            continue
        if axis_kind == kind:
            merged[-1] *= length
        else:
            merged.append(length)
            kind = axis_kind
    return merged


def pattern(canonical_shape: Sequence[int]) -> str:
    """Return the kinds of the axes of a canonical shape as text: "A", "AR", "ARA", "ARAR", ..."""
    return "".join("AR"[axis % 2] for axis in range(len(canonical_shape)))


def is_a(axis: int) -> bool:
    """Whether an axis of a canonical shape is kept."""
    return axis % 2 == 0


# ----------------------------------------------------------------------------------------------------------
# Section 3: tiling


def aligned_product(shape: Sequence[int], axes: Iterator[int] | Sequence[int]) -> int:
    """Multiply the lengths of some axes, the very last axis of the shape rounded up to 8."""
    result = 1
    for axis in axes:
        result *= ceil_align(shape[axis], ALIGN) if axis == len(shape) - 1 else shape[axis]
    return result


def blocks(shape: Sequence[int], ub_bytes: int) -> tuple[int, int]:
    """Return (basic_block, result_block) in bytes for a canonical shape (reduce_spec 3.3)."""
    available = ub_bytes - CACHE_BUF_BYTES
    if len(shape) == 1:
        basic = floor_align(available // (PRE_IN + (PRE_REST + POST) * RATIO), 256)
        return basic, basic * RATIO
    r = aligned_product(shape, range(1, len(shape), 2))
    b = available / (PRE_IN + PRE_REST * RATIO + POST * RATIO / r)
    result = min(max(floor_align(int(b * RATIO / r), 256), 512), 16384)
    basic = floor_align((available - result * POST) // (PRE_IN + PRE_REST * RATIO), 256)
    return basic, result


def cache_line(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return (cl_axis, cl_step, cl_outer) of a canonical shape (reduce_spec 3.4)."""
    inside = 1
    for axis in reversed(range(len(shape))):
        if inside * shape[axis] > CACHE_LINE:
            step = ceil_div(CACHE_LINE, inside)
            return axis, step, ceil_div(shape[axis], step)
        inside *= shape[axis]
    return 0, shape[0], 1


def busy_rate(tasks: int, group: int, vector_cores: int) -> float:
    """Return the share of cores at work, n / coreNum with n aligned to ``group`` (reduce_spec 3.5, 3.6)."""
    n = tasks // ceil_div(tasks, vector_cores)
    if n > group:
        n = floor_align(n, group)
    return n / vector_cores


def unit_a(shape, cl, a_size, r_size, block, vector_cores) -> dict:
    """Choose how much A goes into one UB tile (reduce_spec 3.5)."""
    cl_axis, cl_step, cl_outer = cl
    last = len(shape) - 1
    outer_a = math.prod(shape[axis] for axis in range(cl_axis + 1) if is_a(axis))  # cl axis at full length
    outer_r = math.prod(shape[axis] for axis in range(cl_axis) if not is_a(axis))
    if not is_a(cl_axis):
        outer_r *= cl_outer
    inner = 1
    best_rate = 0.0
    axis = cl_axis if is_a(cl_axis) else cl_axis - 1
    while True:
        length = shape[axis]
        first = cl_step if axis == cl_axis else 1
        max_step = first
        split = False
        for step in range(first, length + 1, A_STEP if last == 0 else 1):
            s = step
            if axis == last and s >= ALIGN:
                s = floor_align(s, ALIGN)
            if inner * s * a_size > MAX_INNER_A or inner * s * a_size * r_size > block:
                split = True
                break
            outer = outer_a // length * ceil_div(length, s)
            rate = busy_rate(outer * outer_r, outer, vector_cores)
            if rate > THRESHOLD and (is_a(last) or rate > best_rate):
                max_step = s
            best_rate = max(best_rate, rate)
        if split or max_step != length or axis < 2:
            step = max(max_step, 1)
            outer = outer_a // length * ceil_div(length, step)
            return {"idx": axis, "step": step, "inner": inner * step, "outer": outer}
        inner *= ceil_align(length, ALIGN) if axis == last else length
        outer_a //= length
        axis -= 2


def unit_r(shape, cl, a_size, r_size, block, vector_cores, unit) -> dict:
    """Choose how much R goes into one UB tile, given unit A (reduce_spec 3.6)."""
    cl_axis, cl_step, _ = cl
    last = len(shape) - 1
    outer_r = math.prod(shape[axis] for axis in range(cl_axis + 1) if not is_a(axis))
    inner = 1
    axis = cl_axis if not is_a(cl_axis) else cl_axis - 1
    while axis > 0:
        length = shape[axis]
        taken = unit["inner"] * inner * a_size * r_size
        effective = ceil_align(length, ALIGN) if axis == last else length
        if taken * effective <= block:
            outer_r //= length
            inner *= effective
            axis -= 2
            continue
        step = min(block // taken, length)
        if axis == last:
            step = floor_align(step, ALIGN)
        if step == 0:
            msg = f"a UB tile of {block} floats cannot hold one slice of axis {axis} of {list(shape)}"
            raise ValueError(msg)
        minimum = cl_step if axis == cl_axis else 1
        for s in range(step, minimum, -1):
            t = floor_align(s, ALIGN) if axis == last and s != length else s
            outer = outer_r // length * ceil_div(length, t)
            if busy_rate(unit["outer"] * outer, unit["outer"], vector_cores) > THRESHOLD:
                step = t
                break
        outer = outer_r // length * ceil_div(length, step)
        return {"idx": axis, "step": step, "inner": inner * step, "outer": outer}
    return {"idx": -1, "step": 1, "inner": inner, "outer": 1}


def extra_a(shape, a_size, r_size, block, result_elements, vector_cores, unit, inner_r) -> dict:
    """Grow unit A when all of R fits in one tile (reduce_spec 3.7).

    An axis walked to its end without a violation is taken whole, whatever its best step was; only the axis
    where a limit is met, or the frontmost one, gets a step.
    """
    last = len(shape) - 1
    axis = unit["idx"]
    length = shape[axis]
    inner = unit["inner"] // unit["step"]
    outer_a = unit["outer"] // ceil_div(length, unit["step"]) * length
    max_step = unit["step"]
    first = max_step + 1
    while True:
        length = shape[axis]
        violated = False
        for s in range(first, length + 1):
            t = ceil_align(s, ALIGN) if axis == last else s
            lanes = inner * t * a_size
            if lanes * inner_r * r_size > block or lanes > result_elements:
                violated = True
                break
            outer = outer_a // length * ceil_div(length, t)
            if lanes <= CACHE_LINE or outer / ceil_align(outer, vector_cores) >= THRESHOLD:
                max_step = t
        if violated or axis < 2:
            outer = outer_a // length * ceil_div(length, max_step)
            return {"idx": axis, "step": max_step, "inner": inner * max_step, "outer": outer}
        inner *= ceil_align(length, ALIGN) if axis == last else length
        outer_a //= length
        axis -= 2
        max_step = first = 1


def nddma(shape, cl, unit, runit) -> int:
    """Return useNddma, 0 or 1 (reduce_spec 3.8)."""
    cl_axis, cl_step, _ = cl
    last = len(shape) - 1
    if shape[last] >= ALIGN:
        return 0
    inside = last - cl_axis
    if inside > 2 or (inside == 2 and cl_step != 1):
        return 1
    chosen = unit if is_a(last) else runit
    factor = chosen["step"]
    for axis in range(last + 1):
        if is_a(axis) == is_a(last) and axis > chosen["idx"]:
            factor *= shape[axis]
    return 0 if factor > ALIGN else 1


def tiling(shape: Sequence[int], vector_cores: int, ub_bytes: int) -> dict:
    """Return the Ascend 950 tiling of a float32 sum over every axis but 1 (reduce_spec 3).

    For pattern A (nothing to reduce) the data is copied and the specification leaves some of the schedule
    open: canonical shape, blocks, group_r and workspace are certain there; unit_a, factor_a and cores for
    more than 64 channels are one reading of it.

    Args:
        shape: the shape of the tensor, rank 2 or more, no zero length.
        vector_cores: number of vector cores.
        ub_bytes: bytes of one Unified Buffer.

    Returns:
        A dict with canonical, pattern, out_size; basic_block and result_block (bytes); cl_axis, cl_step,
        cl_outer, a_size, r_size; unit_a and unit_r, each with idx, step, inner, outer; factor_a, factor_r,
        group_r, cores, use_nddma and workspace (bytes).

    Raises:
        ValueError: an empty tensor, no core, or a UB too small for the tile or for the group stage.
    """
    if vector_cores < 1:
        msg = f"vector_cores must be at least 1, got {vector_cores}"
        raise ValueError(msg)
    if 0 in shape:
        msg = f"an empty tensor has no tiling, got shape {tuple(shape)}"
        raise ValueError(msg)
    dims = canonical(shape)
    last = len(dims) - 1
    basic, result = blocks(dims, ub_bytes)
    block = basic // FLOAT_BYTES
    if block < ALIGN:
        msg = f"a UB of {ub_bytes} bytes leaves no room for a tile"
        raise ValueError(msg)
    cl = cache_line(dims)
    inside = range(cl[0] + 1, last + 1)
    a_size = aligned_product(dims, [axis for axis in inside if is_a(axis)])
    r_size = aligned_product(dims, [axis for axis in inside if not is_a(axis)])

    unit = unit_a(dims, cl, a_size, r_size, block, vector_cores)
    runit = unit_r(dims, cl, a_size, r_size, block, vector_cores, unit)
    if runit["idx"] == -1:
        unit = extra_a(dims, a_size, r_size, block, result // FLOAT_BYTES, vector_cores, unit, runit["inner"])

    a_tiles, r_tiles = unit["outer"], runit["outer"]
    per_core = ceil_div(a_tiles * r_tiles, vector_cores)
    wanted = ceil_div(a_tiles * r_tiles, per_core)
    if a_tiles < wanted:
        aligned = ceil_align(wanted, a_tiles)
        wanted = aligned if aligned <= vector_cores else floor_align(wanted, a_tiles)
    factor_a = ceil_div(a_tiles, wanted)
    factor_r = ceil_div(r_tiles, ceil_div(wanted, a_tiles))
    group_r = ceil_div(r_tiles, factor_r)
    out_size = math.prod(dims[0::2])
    workspace = SYSTEM_WORKSPACE_BYTES
    if group_r > 1:
        workspace += vector_cores * ceil_align(out_size * FLOAT_BYTES, 256)
        if group_r * CHUNK > block:
            msg = f"{group_r} partial rows of {CHUNK} floats do not fit the basic block of {block} floats"
            raise ValueError(msg)
    if unit["inner"] * a_size * runit["inner"] * r_size > block:
        msg = f"the smallest tile of {dims} does not fit the basic block of {block} floats"
        raise ValueError(msg)
    return {
        "canonical": dims,
        "pattern": pattern(dims),
        "out_size": out_size,
        "basic_block": basic,
        "result_block": result,
        "cl_axis": cl[0],
        "cl_step": cl[1],
        "cl_outer": cl[2],
        "a_size": a_size,
        "r_size": r_size,
        "unit_a": unit,
        "unit_r": runit,
        "factor_a": factor_a,
        "factor_r": factor_r,
        "group_r": group_r,
        "cores": ceil_div(a_tiles, factor_a) * ceil_div(r_tiles, factor_r),
        "use_nddma": nddma(dims, cl, unit, runit),
        "workspace": workspace,
    }


# ----------------------------------------------------------------------------------------------------------
# Section 4.1: from a tile to a padded matrix


def tile_slices(plan: dict, a_tile: int, r_tile: int) -> list[slice]:
    """Return, for every canonical axis, the range that one A tile and R tile cover (reduce_spec 4.1, 4.2).

    Tiles are counted with the split axis fastest, then the axes of the same kind before it.
    """
    dims = plan["canonical"]
    slices = [slice(0, length) for length in dims]
    for unit, number in ((plan["unit_a"], a_tile), (plan["unit_r"], r_tile)):
        remaining = number
        for axis in range(unit["idx"], -1, -2):
            step = unit["step"] if axis == unit["idx"] else 1
            remaining, piece = divmod(remaining, ceil_div(dims[axis], step))
            slices[axis] = slice(piece * step, min((piece + 1) * step, dims[axis]))
    return slices


def tile_matrix(tensor: np.ndarray, plan: dict, slices: list[slice], pad) -> np.ndarray:
    """Cut one tile and lay it out: [A, R] if the last axis is R, else [R, A] (reduce_spec 4.1).

    Args:
        tensor: an array in the canonical shape.
        plan: a tiling.
        slices: from `tile_slices`.
        pad: what the pad positions hold.

    Returns:
        A two-dimensional array. Its R length is the same for every R tile. A is not padded here.
    """
    dims = plan["canonical"]
    last = len(dims) - 1
    a_axes = list(range(0, last + 1, 2))
    r_axes = list(range(1, last + 1, 2))
    piece = tensor[tuple(slices)]
    padded_shape = list(piece.shape)
    split = plan["unit_r"]["idx"]
    if split != -1:
        padded_shape[split] = plan["unit_r"]["step"]
    if not is_a(last) and plan["use_nddma"] == 0:
        padded_shape[last] = ceil_align(padded_shape[last], ALIGN)
    padded = np.full(padded_shape, pad, tensor.dtype)
    padded[tuple(slice(0, n) for n in piece.shape)] = piece
    lanes = math.prod(padded_shape[axis] for axis in a_axes)
    rows = math.prod(padded_shape[axis] for axis in r_axes)
    if is_a(last):
        return padded.transpose(r_axes + a_axes).reshape(rows, lanes)
    matrix = np.full((lanes, ceil_align(rows, ALIGN)), pad, tensor.dtype)
    matrix[:, :rows] = padded.transpose(a_axes + r_axes).reshape(lanes, rows)
    return matrix


def tile_lanes(plan: dict, slices: list[slice]) -> int:
    """Return a, the padded A lanes of an [R, A] tile (reduce_spec 4.1)."""
    lengths = [slices[axis].stop - slices[axis].start for axis in range(0, len(slices), 2)]
    if plan["use_nddma"]:
        return ceil_align(math.prod(lengths), ALIGN)
    return ceil_align(lengths[-1], ALIGN) * math.prod(lengths[:-1])


# ----------------------------------------------------------------------------------------------------------
# Sections 4.3 and 4.4: the sum inside one tile


def zeros_like(x: np.ndarray, shape) -> np.ndarray:
    """Return an array of +0.0 (or of the zero leaf) of the type of x."""
    return np.full(shape, ZERO if x.dtype == object else 0.0, x.dtype)


def pair_tree(x: np.ndarray) -> np.ndarray:
    """Add adjacent lanes of the last axis, then neighbours of the results, until one is left."""
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def stride_halving(v: np.ndarray) -> np.ndarray:
    """Add the second half of the first axis to the first half until one is left; length a power of two."""
    while len(v) > 1:
        half = len(v) // 2
        v = v[:half] + v[half:]
    return v[0]


def fold_tail(v: np.ndarray) -> np.ndarray:
    """Return the first m entries with the others added onto them, m the largest power of two <= len(v)."""
    m = min(floor_power2(len(v)), MAX_FOLD)
    t = len(v) - m
    if t > m:
        msg = f"a tile of {len(v)} reduced elements is longer than the kernel's fold of {MAX_FOLD} can take"
        raise ValueError(msg)
    folded = v[:m].copy()
    folded[:t] = v[:t] + v[m:]
    return folded


def consecutive_groups(v: np.ndarray) -> np.ndarray:
    """Sum 2**f entries: f // 4 passes over groups of 16 consecutive ones, the rest by halving."""
    folds = len(v).bit_length() - 1
    for _ in range(folds // 4):
        v = np.stack([stride_halving(v[16 * g : 16 * g + 16]) for g in range(len(v) // 16)])
    return stride_halving(v)


def strided_groups(v: np.ndarray) -> np.ndarray:
    """Sum 2**f entries: f // 4 passes that combine g, g + s, ..., g + 15 s; the rest by halving."""
    folds = len(v).bit_length() - 1
    for _ in range(folds // 4):
        s = len(v) // 16
        v = np.stack([stride_halving(v[g::s]) for g in range(s)])
    return stride_halving(v)


def in_tile_ar(matrix: np.ndarray) -> np.ndarray:
    """Sum every row of an [A, R] matrix; R is padded to a multiple of 8 (reduce_spec 4.3)."""
    x = matrix
    k = x.shape[1]
    if k == 1:
        return x[:, 0].copy()
    if k == ALIGN:
        return pair_tree(x)
    if k < 32:
        acc = x[:, 0:ALIGN]
        for b in range(1, k // ALIGN):
            acc = x[:, ALIGN * b : ALIGN * (b + 1)] + acc
        return pair_tree(acc)
    if k <= VL:
        register = zeros_like(x, (len(x), VL))
        register[:, :k] = x
        return pair_tree(register)
    folded = fold_tail(x.T)  # [m, A]
    registers = folded.reshape(len(folded) // VL, VL, len(x))
    return pair_tree(consecutive_groups(registers).T)


def in_tile_ra(matrix: np.ndarray, lanes: int) -> np.ndarray:
    """Sum the rows of an [R, A] matrix.

    Args:
        matrix: rows to be added; the A columns may be any subset of the tile's, they do not meet.
        lanes: a, the padded A lanes of the whole tile, which chooses the grouping.

    Returns:
        One value per column (reduce_spec 4.4).
    """
    if len(matrix) == 1:
        return matrix[0].copy()
    rows = fold_tail(matrix)
    if lanes <= 32 or lanes > 65535:
        return stride_halving(rows)
    if lanes <= VL:
        return consecutive_groups(rows)
    return strided_groups(rows)


# ----------------------------------------------------------------------------------------------------------
# Section 4.2: merge of the tiles of one core


def nearest_power2(n: int) -> int:
    """Return FindNearestPower2(n) (reduce_spec 4.2)."""
    if n == 0:
        return 0
    if n <= 2:
        return 1
    if n <= 4:
        return 2
    power = floor_power2(n)
    return power // 2 if power == n else power


def merge_tiles(n: int, tile: Callable, in_tile: Callable):
    """Sum n tiles: bisection of the tail onto the head, then the binary cache (reduce_spec 4.2).

    Args:
        n: number of tiles.
        tile: function of the tile number, returns its padded matrix.
        in_tile: function of a matrix, returns its sum.

    Returns:
        What in_tile returns, summed over the tiles.
    """
    pos = nearest_power2(n)
    tail = n - pos
    cache: dict = {}
    for i in range(pos):
        value = in_tile(tile(i) + tile(i + pos)) if i < tail else in_tile(tile(i))
        k = (i ^ (i + 1)).bit_count() - 1
        for j in range(k):
            value = value + cache[j]
        cache[k] = value
    return cache[pos.bit_length() - 1]


# ----------------------------------------------------------------------------------------------------------
# Section 4.5: the whole sum


def group_sum(plan: dict, slices_of: Callable, matrix_of: Callable, group: int) -> np.ndarray:
    """Sum what one R group of one A tile adds up (reduce_spec 4.5, stage 1).

    Args:
        plan: a tiling.
        slices_of: function of the R tile number.
        matrix_of: function of the slices, the padded matrix.
        group: the row of the workspace that is written, 0 to group_r - 1.
    """
    first = group * plan["factor_r"]
    end = min(first + plan["factor_r"], plan["unit_r"]["outer"])
    if plan["pattern"].endswith("R"):
        in_tile = in_tile_ar
    else:
        lanes = tile_lanes(plan, slices_of(first))

        def in_tile(matrix):
            return in_tile_ra(matrix, lanes)

    return merge_tiles(end - first, lambda i: matrix_of(slices_of(first + i)), in_tile)


def reduce_sum(x: np.ndarray, vector_cores: int, ub_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sum a float32 tensor over every axis but 1 in the order of the Ascend 950 kernel (reduce_spec 4).

    Args:
        x: float32, rank 2 or more.
        vector_cores: number of vector cores.
        ub_bytes: bytes of one Unified Buffer.

    Returns:
        (total, partials): float32 arrays of shape (C,) and (group_r, C). With group_r == 1 the only row of
        partials is the total.

    Raises:
        ValueError: see `tiling`.
        TypeError: x is not float32.
    """
    if x.dtype != np.float32:
        msg = f"x must be float32, got {x.dtype}"
        raise TypeError(msg)
    channels = x.shape[1]
    if x.size == 0:
        return np.zeros(channels, np.float32), np.zeros((1, channels), np.float32)
    plan = tiling(x.shape, vector_cores, ub_bytes)
    if plan["pattern"] == "A":
        total = x.reshape(channels).copy()
        return total, total[np.newaxis].copy()
    tensor = np.ascontiguousarray(x).reshape(plan["canonical"])
    outputs = np.arange(channels).reshape(plan["canonical"][0::2])
    partials = np.full((plan["group_r"], channels), np.nan, np.float32)
    with np.errstate(all="ignore"):
        for a_tile in range(plan["unit_a"]["outer"]):
            where = outputs[tuple(tile_slices(plan, a_tile, 0)[0::2])].reshape(-1)
            for group in range(plan["group_r"]):
                partials[group, where] = group_sum(
                    plan,
                    lambda r_tile, a_tile=a_tile: tile_slices(plan, a_tile, r_tile),
                    lambda slices: tile_matrix(tensor, plan, slices, np.float32(0.0)),
                    group,
                )
        if plan["group_r"] == 1:
            return partials[0].copy(), partials
        total = np.full(channels, np.nan, np.float32)
        for start in range(0, channels, CHUNK):
            rows = partials[:, start : start + CHUNK]
            total[start : start + CHUNK] = in_tile_ra(rows, ceil_align(rows.shape[1], ALIGN))
    return total, partials


# ----------------------------------------------------------------------------------------------------------
# The summation tree of one channel


class Node:
    """A value in a summation tree; ``a + b`` is the node that adds them."""

    __slots__ = ()

    def __add__(self, other: Node) -> Add:
        return Add(self, other)


@dataclass(frozen=True, slots=True)
class Leaf(Node):
    """An element of the tensor, by its flat (row-major) index."""

    index: int


@dataclass(frozen=True, slots=True)
class Zero(Node):
    """A pad or a masked-off lane: +0.0."""


@dataclass(frozen=True, slots=True)
class Add(Node):
    """One float32 addition."""

    left: Node
    right: Node


ZERO = Zero()


def to_nodes(indices: np.ndarray) -> np.ndarray:
    """Turn an array of flat indices (-1 for a pad) into an object array of leaves."""
    nodes = np.empty(indices.shape, object)
    for position, index in np.ndenumerate(indices):
        nodes[position] = Leaf(int(index)) if index >= 0 else ZERO
    return nodes


def tree(shape: Sequence[int], vector_cores: int, ub_bytes: int, channel: int) -> Node:
    """Return the summation tree of one channel of a sum over every axis but 1 (reduce_spec 4).

    Args:
        shape: the shape of the tensor.
        vector_cores: number of vector cores.
        ub_bytes: bytes of one Unified Buffer.
        channel: which output, 0 to C - 1.

    Returns:
        The root: a `Leaf` (flat index in the tensor), `ZERO` for a pad, or an `Add`. Every pad the kernel
        adds is in the tree.
    """
    plan = tiling(shape, vector_cores, ub_bytes)
    channels = shape[1]
    if not 0 <= channel < channels:
        msg = f"channel must be in 0..{channels - 1}, got {channel}"
        raise ValueError(msg)
    if plan["pattern"] == "A":
        return Leaf(channel)
    tensor = np.arange(math.prod(shape)).reshape(plan["canonical"])
    outputs = np.arange(channels).reshape(plan["canonical"][0::2])
    for a_tile in range(plan["unit_a"]["outer"]):
        where = outputs[tuple(tile_slices(plan, a_tile, 0)[0::2])].reshape(-1)
        if channel in where:
            break
    lane = int(np.flatnonzero(where == channel)[0])

    def slices_of(r_tile: int) -> list[slice]:
        return tile_slices(plan, a_tile, r_tile)

    def matrix_of(slices: list[slice]) -> np.ndarray:
        matrix = tile_matrix(tensor, plan, slices, -1)
        one = matrix[lane : lane + 1] if plan["pattern"].endswith("R") else matrix[:, lane : lane + 1]
        return to_nodes(one)

    rows = np.empty((plan["group_r"], 1), object)
    for group in range(plan["group_r"]):
        rows[group] = group_sum(plan, slices_of, matrix_of, group)
    if plan["group_r"] == 1:
        return rows[0, 0]
    width = min(CHUNK, channels - channel // CHUNK * CHUNK)
    return in_tile_ra(rows, ceil_align(width, ALIGN))[0]


def evaluate(root: Node, values: np.ndarray) -> np.float32:
    """Evaluate a tree in float32, one rounding per addition.

    Args:
        root: from `tree`.
        values: the tensor, float32; leaves index its flattened form.
    """
    flat = np.asarray(values, np.float32).reshape(-1)
    todo: list = [root]
    done: list[np.float32] = []
    with np.errstate(all="ignore"):
        while todo:
            node = todo.pop()
            if node is None:  # both operands are ready
                right = done.pop()
                left = done.pop()
                done.append(np.float32(left + right))
            elif isinstance(node, Add):
                todo += (None, node.right, node.left)
            else:
                done.append(flat[node.index] if isinstance(node, Leaf) else np.float32(0.0))
    return done[0]


def leaves(root: Node) -> list[Node]:
    """Return the leaves of a tree, pads included, from left to right."""
    todo = [root]
    found = []
    while todo:
        node = todo.pop()
        if isinstance(node, Add):
            todo += (node.right, node.left)
        else:
            found.append(node)
    return found


def render(root: Node, shape: Sequence[int] | None = None) -> str:
    """Write a tree as text, ``(x[0,0] + x[2,0]) + (x[1,0] + x[3,0])``; without a shape, with flat indices."""
    todo: list = [root]
    text = []
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            text.append(node)
        elif isinstance(node, Add):
            for operand, before in ((node.right, " + "), (node.left, "")):
                bracketed = isinstance(operand, Add)
                todo += (")", operand, before + "(") if bracketed else (operand, before)
        elif isinstance(node, Leaf):
            index = (node.index,) if shape is None else np.unravel_index(node.index, shape)
            text.append("x[" + ",".join(str(int(i)) for i in index) + "]")
        else:
            text.append("0")
    return "".join(text)


# ----------------------------------------------------------------------------------------------------------
# Section 1.4: the operator


def batch_norm_reduce_backward(g, x, mean, invstd, vector_cores: int, ub_bytes: int) -> dict:
    """Compute the operator in float32 before the final casts (reduce_spec 1.4 and 1.5).

    Args:
        g: grad_out, any dtype that float32 holds exactly, shape (N, C, ...).
        x: input, same shape.
        mean: shape (C,).
        invstd: shape (C,).
        vector_cores: number of vector cores.
        ub_bytes: bytes of one Unified Buffer.

    Returns:
        A dict of float32 arrays: sum_dy, sum_dy_x, sum_dy_xmu, grad_weight, grad_bias of shape (C,), and
        partials_dy, partials_dy_x of shape (group_r, C).
    """
    g32, x32, mean32, invstd32 = (np.asarray(v).astype(np.float32) for v in (g, x, mean, invstd))
    if g32.shape != x32.shape:
        msg = f"g and x must have one shape, got {g32.shape} and {x32.shape}"
        raise ValueError(msg)
    with np.errstate(all="ignore"):
        product = g32 * x32
        sum_dy_x, partials_dy_x = reduce_sum(product, vector_cores, ub_bytes)
        sum_dy, partials_dy = reduce_sum(g32, vector_cores, ub_bytes)
        scaled = mean32 * sum_dy
        sum_dy_xmu = sum_dy_x - scaled
        grad_weight = sum_dy_xmu * invstd32
    return {
        "sum_dy": sum_dy,
        "sum_dy_x": sum_dy_x,
        "sum_dy_xmu": sum_dy_xmu,
        "grad_weight": grad_weight,
        "grad_bias": sum_dy.copy(),
        "partials_dy": partials_dy,
        "partials_dy_x": partials_dy_x,
    }


# ----------------------------------------------------------------------------------------------------------
# Exact arithmetic

UNIT_EXPONENT = 149  # every finite float32, float16 and bfloat16 is a whole number of 2**-149

FORMATS = {  # precision in bits, smallest and largest exponent of a normal number
    "float32": (24, -126, 127),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
}


def units(value) -> int:
    """Return a finite float32, float16 or bfloat16 value as a whole number of 2**-149."""
    numerator, denominator = float(value).as_integer_ratio()
    scaled, remainder = divmod(numerator << UNIT_EXPONENT, denominator)
    if remainder:
        msg = f"{value!r} is not a float32 value"
        raise ValueError(msg)
    return scaled


def exact(g, x, mean, invstd) -> dict[str, list[Fraction]]:
    """Return the exact results as rational numbers.

    Args:
        g: grad_out, finite float32, float16 or bfloat16, shape (N, C, ...).
        x: input, same shape.
        mean: shape (C,).
        invstd: shape (C,).

    Returns:
        A dict of lists of C fractions: sum_dy, sum_dy_x, sum_dy_xmu, grad_weight, grad_bias.
    """
    channels = g.shape[1]
    result: dict[str, list[Fraction]] = {
        key: [] for key in ("sum_dy", "sum_dy_x", "sum_dy_xmu", "grad_weight", "grad_bias")
    }
    for c in range(channels):
        sum_g = 0
        sum_gx = 0
        for one_g, one_x in zip(g[:, c].reshape(-1), x[:, c].reshape(-1), strict=True):
            g_units = units(one_g)
            sum_g += g_units
            sum_gx += g_units * units(one_x)
        sum_dy = Fraction(sum_g, 2**UNIT_EXPONENT)
        sum_dy_x = Fraction(sum_gx, 4**UNIT_EXPONENT)
        sum_dy_xmu = sum_dy_x - Fraction(float(mean[c])) * sum_dy
        result["sum_dy"].append(sum_dy)
        result["sum_dy_x"].append(sum_dy_x)
        result["sum_dy_xmu"].append(sum_dy_xmu)
        result["grad_weight"].append(sum_dy_xmu * Fraction(float(invstd[c])))
        result["grad_bias"].append(sum_dy)
    return result


def round_nearest_even(value: Fraction, dtype: str) -> float:
    """Round a rational number to a format, nearest, ties to even, overflow to infinity.

    Args:
        value: the number.
        dtype: "float32", "float16" or "bfloat16".

    Returns:
        The rounded value as a Python float, which holds every value of the three formats. A negative number
        that rounds to zero gives -0.0; zero itself gives +0.0.
    """
    precision, smallest, largest = FORMATS[dtype]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = max(exponent, smallest) - precision + 1
    rounded = math.ldexp(round(size / Fraction(2) ** quantum), quantum)  # round(Fraction) takes ties to even
    if rounded >= 2.0 ** (largest + 1):
        rounded = math.inf
    return -rounded if value < 0 else rounded
