"""What a reduction will do on a product, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import products
from emulator.errors import EmulatorError
from emulator.products import Product
from ops.reduce_sum.canonical import canonicalise
from ops.reduce_sum.geometry import Geometry, make_geometry
from ops.reduce_sum.tiling import CACHE_BUF_BYTES, Tiling, ceil_to, make_tiling

MAX_RANK, MIN_RANK = 8, 2


@dataclass(frozen=True)
class CoreShare:
    """The work of one core: A tiles and R tiles as half-open ranges, channels, elements it reads."""

    core: int
    a_tiles: tuple[int, int]
    r_tiles: tuple[int, int]
    channels: tuple[int, int]
    elements: int


@dataclass(frozen=True, kw_only=True)
class ReducePlan:
    """Tiling of the fp32 sum over every axis but 1 of ``shape`` on ``product`` (reduce_spec 2 and 3)."""

    shape: tuple[int, ...]
    product: Product
    tiling: Tiling
    geometry: Geometry | None
    """None when there is nothing to reduce (one element per channel)."""

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """Alternating kept (A) and reduced (R) lengths."""
        return self.tiling.canonical.shape

    @property
    def pattern(self) -> str:
        """The kinds of the canonical axes, for example "ARAR"."""
        return self.tiling.canonical.pattern

    @property
    def unit_a(self) -> int:
        """Channels of one A tile."""
        return self.tiling.unit_a.step if self.geometry is None else self.geometry.a_step

    @property
    def unit_r(self) -> int:
        """Step on the split R axis; the whole of R when none is split."""
        return self.tiling.unit_r.step if self.tiling.unit_r.idx >= 0 else self.tiling.canonical.reduce_count

    @property
    def cores(self) -> int:
        """Cores launched (blockDim)."""
        return self.tiling.cores

    @property
    def group_r(self) -> int:
        """Cores that share an A tile; more than 1 means partial sums, workspace and SyncAll."""
        return self.tiling.group_r

    @property
    def workspace_bytes(self) -> int:
        """Workspace of the kernel, the 16 MiB system part included (reduce_spec 6)."""
        return self.tiling.workspace_bytes

    @property
    def fidelity(self) -> str:
        """Of the product: "source" (950) or "model"."""
        return self.product.fidelity

    @property
    def channels(self) -> int:
        """Outputs."""
        return self.tiling.canonical.out_size

    def ub_buffers(self) -> tuple[tuple[str, int], ...]:
        """UB buffers of the ReduceSum kernel and their bytes, in order."""
        basic, result = self.tiling.basic_block, self.tiling.result_block
        if self.geometry is None:
            return (("out", ceil_to(self.unit_a * 4, 32)),)
        return (
            ("inA0", basic),
            ("inA1", basic),
            ("inB0", basic),
            ("inB1", basic),
            ("pairSum", basic),
            ("result0", result),
            ("result1", result),
            ("cache", CACHE_BUF_BYTES),
        )

    def shares(self) -> tuple[CoreShare, ...]:
        """The work of every core, in block order."""
        t = self.tiling
        per_channel = t.canonical.reduce_count
        shares = []
        for core in range(t.cores):
            first_a = core // t.group_r * t.factor_a
            last_a = min(first_a + t.factor_a, t.unit_a.outer)
            group = core % t.group_r
            first_r = group * t.factor_r
            last_r = min(first_r + t.factor_r, t.unit_r.outer)
            first_c, last_c = first_a * self.unit_a, min(last_a * self.unit_a, self.channels)
            count = per_channel if t.group_r == 1 else self._tile_elements(first_r, last_r)
            shares.append(
                CoreShare(core, (first_a, last_a), (first_r, last_r), (first_c, last_c), count * (last_c - first_c))
            )
        return tuple(shares)

    def _tile_elements(self, first: int, last: int) -> int:
        """Elements of one channel in R tiles first .. last - 1."""
        g = self.geometry
        assert g is not None

        def before(tile: int) -> int:
            if g.s_tiles == 1:
                return min(tile * g.r_step, g.n) * g.s
            return tile // g.s_tiles * g.s + min(tile % g.s_tiles * g.r_step, g.s)

        return before(last) - before(first)

    def tiling_data(self) -> dict[str, Any]:
        """The tiling data the kernel gets, with the vendor's field names (reduce_spec 3.8)."""
        t = self.tiling
        shape = list(self.canonical_shape)
        stride = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            stride[axis] = stride[axis + 1] * shape[axis + 1]
        return {
            "factorACntPerCore": t.factor_a,
            "factorATotalCnt": t.unit_a.outer,
            "ubFactorA": t.unit_a.step,
            "factorRCntPerCore": t.factor_r,
            "factorRTotalCnt": t.unit_r.outer,
            "ubFactorR": t.unit_r.step,
            "groupR": t.group_r,
            "outSize": t.canonical.out_size,
            "basicBlock": t.basic_block,
            "resultBlock": t.result_block,
            "coreNum": self.product.vector_cores,
            "realCoreNum": t.cores,
            "useNddma": int(t.use_nddma),
            "meanVar": 1.0 / t.canonical.reduce_count,
            "shape": shape,
            "stride": stride,
        }


def check_shape(shape: Sequence[int], what: str = "shape") -> tuple[int, ...]:
    """A tuple of 2 to 8 positive integers. Raises EmulatorError otherwise."""
    try:
        dims: tuple[Any, ...] = tuple(shape)
        len(shape[:0])  # a sequence, so that the order of the dims is defined
    except TypeError:
        raise EmulatorError(f"{what}: got {shape!r}; allowed: a sequence of dims such as (32, 64, 56, 56)") from None
    if not all(hasattr(d, "__index__") and not isinstance(d, bool) and int(d) >= 1 for d in dims):
        raise EmulatorError(f"{what}: got {list(dims)}; allowed: positive whole numbers; give every dim at least 1")
    if not MIN_RANK <= len(dims) <= MAX_RANK:
        raise EmulatorError(
            f"{what}: got rank {len(dims)} {list(dims)}; allowed: rank {MIN_RANK} to {MAX_RANK}; axis 1 is the channel"
        )
    return tuple(int(d) for d in dims)


def plan_reduce_sum(shape: Sequence[int], *, product: Product | str = products.DEFAULT_PRODUCT) -> ReducePlan:
    """Plan the fp32 sum over every axis but 1.

    shape: rank 2 to 8, dims at least 1. Raises EmulatorError for a bad shape, TilingError when the UB of a
    what-if machine holds no tile. (reduce_spec 2.1, 3)
    """
    dims = check_shape(shape)
    chip = products.get(product)
    tiling = make_tiling(canonicalise(dims), chip)
    geometry = None if tiling.canonical.pattern == "A" else make_geometry(tiling)
    return ReducePlan(shape=dims, product=chip, tiling=tiling, geometry=geometry)
