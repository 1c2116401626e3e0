"""Tiling of ReduceSum as the Ascend 950 host code does it (reduce_spec 3.1 to 3.8).

Written on the canonical shape; ``emulator`` products supply cores and UB. The names of ``tiling_data`` are
the vendor's. Dims strictly inside the cache-line axis always belong to a tile whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from emulator.errors import EmulatorError
from emulator.products import Product
from ops.reduce_sum.canonical import Canonical

ELEMENT_BYTES = 4
"""Every reduction here is fp32: the operator casts its inputs first."""
BLOCK_ELEMENTS = 32 // ELEMENT_BYTES
CACHE_LINE_ELEMENTS = 256 // ELEMENT_BYTES
CACHE_BUF_BYTES = 16384
MAX_INNER_A_ELEMENTS = 512 // ELEMENT_BYTES
BALANCE_THRESHOLD = 0.95
A_STEP = 4
"""Step of the A loop when nothing is reduced; how it enters the schedule there is one reading of reduce_spec 3.1."""
PRE_IN, PRE_REST, POST = 4, 1, 2
"""Buffer counts of the DAG CopyIn - ReduceSum - CopyOut in fp32 (reduce_spec 3.2)."""
SYSTEM_WORKSPACE_BYTES = 16 * 1024 * 1024
CHUNK = 64
"""Outputs in one chunk of the second stage of a group reduce (reduce_spec 4.5)."""


class TilingError(EmulatorError):
    """The UB of this (what-if) machine holds no tile of this shape."""


@dataclass(frozen=True)
class Unit:
    """How far one axis kind is split: the split axis (-1: none), step on it, elements inside, tiles."""

    idx: int
    step: int
    inner: int
    outer: int


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """The tiling of one reduction."""

    canonical: Canonical
    basic_block: int
    """Bytes of an input tile."""
    result_block: int
    cl_axis: int
    cl_step: int
    a_size: int
    r_size: int
    unit_a: Unit
    unit_r: Unit
    factor_a: int
    """A tiles per core (factorACntPerCore)."""
    factor_r: int
    """R tiles per core (factorRCntPerCore)."""
    group_r: int
    """Cores that share one A tile; more than 1 is a group reduce."""
    cores: int
    use_nddma: bool
    workspace_bytes: int


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def ceil_to(a: int, unit: int) -> int:
    """a rounded up to a multiple of unit."""
    return -(-a // unit) * unit


def floor_to(a: int, unit: int) -> int:
    """a rounded down to a multiple of unit."""
    return a // unit * unit


def make_tiling(canonical: Canonical, product: Product) -> Tiling:
    """Tile ``canonical`` for ``product``. Raises TilingError when the UB is too small for one tile."""
    return _Maker(canonical, product).make()


class _Maker:
    """The steps of reduce_spec 3.3 to 3.8, one method each, sharing their intermediate values."""

    def __init__(self, canonical: Canonical, product: Product) -> None:
        self.canonical, self.product = canonical, product
        self.shape = canonical.shape
        self.last = len(self.shape) - 1
        self.cores = product.vector_cores

    def need(self, ok: bool, why: str, remedy: str = "give the machine a larger UB") -> None:
        """Refuse a machine whose UB holds no tile."""
        if not ok:
            raise TilingError(
                f"ub_bytes: {self.product.name} has {self.product.ub_bytes} B of UB, too small for one tile of "
                f"{list(self.shape)} ({why}); {remedy} or choose a real product"
            )

    def make(self) -> Tiling:
        """All steps in order."""
        self.basic_block()
        self.cache_line()
        self.tile_elements = self.basic // ELEMENT_BYTES
        self.make_unit_a()
        self.make_unit_r()
        if self.unit_r.idx == -1:
            self.extra_a()
        self.need_tile(self.unit_a.inner * self.unit_r.inner * self.a_size * self.r_size)
        return self.split_cores()

    def need_tile(self, elements: int) -> None:
        """Refuse a machine whose input buffer does not hold ``elements``."""
        self.need(
            elements <= self.tile_elements,
            f"a tile needs {elements * ELEMENT_BYTES} B, the input buffer holds {self.basic} B",
        )

    def basic_block(self) -> None:
        """3.3: bytes of the input tile and of the result."""
        available = self.product.ub_bytes - CACHE_BUF_BYTES
        if self.canonical.pattern == "A":
            self.result = self.basic = max(floor_to(available // (PRE_IN + PRE_REST + POST), 256), 0)
            self.need(self.basic >= 256, f"{max(available, 0)} B remain beside the {CACHE_BUF_BYTES} B cache")
            return
        r = math.prod(self.shape[1::2])
        if self.canonical.tail_r:
            r = r // self.shape[-1] * ceil_to(self.shape[-1], BLOCK_ELEMENTS)
        b = available / (PRE_IN + PRE_REST + POST / r)
        self.result = min(max(floor_to(int(b / r), 256), 512), CACHE_BUF_BYTES)
        self.basic = floor_to((available - self.result * POST) // (PRE_IN + PRE_REST), 256)
        self.need(
            available > 0 and self.basic >= 256, f"{max(available, 0)} B remain beside the {CACHE_BUF_BYTES} B cache"
        )

    def cache_line(self) -> None:
        """3.4: the axis where the innermost dims first exceed a cache line."""
        self.cl_axis, self.cl_step, outer = 0, self.shape[0], 1
        inside = 1
        for axis in range(self.last, -1, -1):
            if inside * self.shape[axis] > CACHE_LINE_ELEMENTS:
                self.cl_axis = axis
                self.cl_step = ceil_div(CACHE_LINE_ELEMENTS, inside)
                outer = ceil_div(self.shape[axis], self.cl_step)
                break
            inside *= self.shape[axis]
        sizes, outers, full = [1, 1], [1, 1], [1, 1]
        for axis, length in enumerate(self.shape):
            if axis > self.cl_axis:
                sizes[axis % 2] *= ceil_to(length, BLOCK_ELEMENTS) if axis == self.last else length
            elif axis < self.cl_axis:
                outers[axis % 2] *= length
                full[axis % 2] *= length
        outers[self.cl_axis % 2] *= outer
        full[self.cl_axis % 2] *= self.shape[self.cl_axis]
        self.a_size, self.r_size = sizes
        self.outer_a, self.outer_r = outers
        self.full_a, self.full_r = full

    def balanced(self, tiles: int, other: int) -> float:
        """Share of the cores that ``tiles * other`` pieces keep busy, in whole rounds of ``tiles``."""
        work = tiles * other
        busy = work // ceil_div(work, self.cores)
        if busy > tiles:
            busy = floor_to(busy, tiles)
        return busy / self.cores

    def axes(self, kind: int, start: int) -> range:
        """Axes of one kind (0: A, 1: R) from ``start`` (or the one before it) to the front."""
        return range(start if start % 2 == kind else start - 1, -1, -2)

    def make_unit_a(self) -> None:
        """3.5: how much of the kept axes goes into a tile."""
        inner, outer, best = 1, self.full_a, 0.0
        axes = self.axes(0, self.cl_axis)
        for axis in axes:
            length = self.shape[axis]
            first = self.cl_step if axis == self.cl_axis else 1
            chosen, split = first, False
            for step in range(first, length + 1, A_STEP if self.last == 0 else 1):
                s = floor_to(step, BLOCK_ELEMENTS) if axis == self.last and step >= BLOCK_ELEMENTS else step
                held = inner * s * self.a_size
                if held > MAX_INNER_A_ELEMENTS or held * self.r_size > self.tile_elements:
                    split = True
                    break
                rate = self.balanced(outer // length * ceil_div(length, s), self.outer_r)
                if rate > BALANCE_THRESHOLD and (not self.canonical.tail_r or rate > best):
                    chosen = s
                best = max(best, rate)
            if split or chosen != length or axis == axes[-1]:
                step = max(chosen, 1)
                outer = outer // length * ceil_div(length, step)
                self.unit_a = Unit(axis, step, inner * step, outer)
                return
            inner *= ceil_to(length, BLOCK_ELEMENTS) if axis == self.last else length
            outer //= length

    def make_unit_r(self) -> None:
        """3.6: how much of the reduced axes goes into a tile."""
        inner, outer = 1, self.full_r
        fixed = self.unit_a.inner * self.a_size * self.r_size
        for axis in self.axes(1, self.cl_axis):
            length = self.shape[axis]
            whole = ceil_to(length, BLOCK_ELEMENTS) if axis == self.last else length
            if fixed * inner * whole <= self.tile_elements:
                outer //= length
                inner *= whole
                continue
            step = min(self.tile_elements // (fixed * inner), length)
            if axis == self.last:
                step = floor_to(step, BLOCK_ELEMENTS)
            if step == 0:
                self.need_tile(fixed * inner * (BLOCK_ELEMENTS if axis == self.last else 1))
            least = self.cl_step if axis == self.cl_axis else 1
            for s in range(step, least, -1):
                t = floor_to(s, BLOCK_ELEMENTS) if axis == self.last and s != length else s
                if self.balanced_r(outer // length * ceil_div(length, t)) > BALANCE_THRESHOLD:
                    step = t
                    break
            self.unit_r = Unit(axis, step, inner * step, outer // length * ceil_div(length, step))
            return
        self.unit_r = Unit(-1, 1, inner, 1)

    def balanced_r(self, tiles: int) -> float:
        """As ``balanced``, with the A tiles as the rounds."""
        work = self.unit_a.outer * tiles
        busy = work // ceil_div(work, self.cores)
        if busy > self.unit_a.outer:
            busy = floor_to(busy, self.unit_a.outer)
        return busy / self.cores

    def extra_a(self) -> None:
        """3.7: with R whole in a tile, take more of A while input and result buffers hold it."""
        axis0 = self.unit_a.idx
        inner = self.unit_a.inner // self.unit_a.step
        outer = self.unit_a.outer // ceil_div(self.shape[axis0], self.unit_a.step) * self.shape[axis0]
        for axis in range(axis0, -1, -2):
            length = self.shape[axis]
            chosen = self.unit_a.step if axis == axis0 else 1
            violated = False
            for s in range(chosen + 1 if axis == axis0 else 1, length + 1):
                t = ceil_to(s, BLOCK_ELEMENTS) if axis == self.last else s
                held = inner * t * self.a_size
                if held * self.unit_r.inner * self.r_size > self.tile_elements or held > self.result // ELEMENT_BYTES:
                    violated = True
                    break
                tiles = outer // length * ceil_div(length, t)
                if held <= CACHE_LINE_ELEMENTS or tiles / ceil_to(tiles, self.cores) >= BALANCE_THRESHOLD:
                    chosen = t
            if violated or axis - 2 < 0:
                tiles = outer // length * ceil_div(length, chosen)
                self.unit_a = Unit(axis, chosen, inner * chosen, tiles)
                return
            inner *= ceil_to(length, BLOCK_ELEMENTS) if axis == self.last else length
            outer //= length

    def split_cores(self) -> Tiling:
        """3.8: A over the cores first; R only while A tiles are fewer than the cores wanted."""
        a, r = self.unit_a.outer, self.unit_r.outer
        wanted = ceil_div(a * r, ceil_div(a * r, self.cores))
        if a < wanted:
            rounded = ceil_to(wanted, a)
            wanted = rounded if rounded <= self.cores else floor_to(wanted, a)
        factor_a = ceil_div(a, wanted)
        factor_r = ceil_div(r, ceil_div(wanted, a))
        group_r = ceil_div(r, factor_r)
        combine = group_r * CHUNK * ELEMENT_BYTES
        self.need(
            group_r == 1 or combine <= self.basic,
            f"the combine of {group_r} partial sums needs {combine} B, the input buffer holds {self.basic} B",
            "use fewer vector cores or a larger UB",
        )
        cores = ceil_div(a, factor_a) * group_r
        workspace = self.cores * ceil_to(self.canonical.out_size * ELEMENT_BYTES, 256) if group_r > 1 else 0
        return Tiling(
            canonical=self.canonical,
            basic_block=self.basic,
            result_block=self.result,
            cl_axis=self.cl_axis,
            cl_step=self.cl_step,
            a_size=self.a_size,
            r_size=self.r_size,
            unit_a=self.unit_a,
            unit_r=self.unit_r,
            factor_a=factor_a,
            factor_r=factor_r,
            group_r=group_r,
            cores=cores,
            use_nddma=self.nddma(),
            workspace_bytes=SYSTEM_WORKSPACE_BYTES + workspace,
        )

    def nddma(self) -> bool:
        """3.8: whether tiles are gathered by NDDMA (packed rows) rather than padded row by row."""
        if self.shape[-1] >= BLOCK_ELEMENTS:
            return False
        inside = len(self.shape) - 1 - self.cl_axis
        if inside > 2 or (inside == 2 and self.cl_step != 1):
            return True
        unit = self.unit_r if self.canonical.tail_r else self.unit_a
        kind = 1 if self.canonical.tail_r else 0
        factor = unit.step * math.prod(
            length for axis, length in enumerate(self.shape) if axis % 2 == kind and axis > unit.idx
        )
        return factor <= BLOCK_ELEMENTS
