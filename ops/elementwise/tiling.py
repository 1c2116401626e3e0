"""Tiling of the element-wise kernels.

The rule is that of the open SyncBatchNormBackwardReduce kernel (ops-nn, experimental/norm/
sync_batch_norm_backward_reduce, op_host): work in 32-byte blocks; few enough cores that each has 128 blocks;
2048 bytes of UB kept free; two buffers only when a core has more than one tile; the last core takes what is
left. For Mul and Cast, whose 950 kernels are not laid out in these facts, the same rule is an assumption. No
value depends on it: every element is computed alone.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.errors import EmulatorError
from emulator.products import Product

BLOCK_BYTES = 32
MIN_BLOCKS_PER_CORE = 128
UB_RESERVED_BYTES = 2048


class ElementwiseTiling(NamedTuple):
    """Elements in all, cores, elements per core (the last has more or fewer), per tile; 1 or 2 buffers."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    cores: int
    per_core: int
    tile: int
    buffers: int


def tile_elementwise(count: int, itemsize: int, streams: int, temporaries: int, product: Product) -> ElementwiseTiling:
    """Tile ``count`` elements of ``itemsize`` bytes in ``streams`` GM inputs and outputs.

    temporaries: fp32 buffers beside them. Raises EmulatorError when the UB holds no 64 elements.
    """
    per_block = BLOCK_BYTES // itemsize
    blocks = -(-count // per_block)
    cores = min(product.vector_cores, max(1, blocks // MIN_BLOCKS_PER_CORE))
    per_core = blocks // cores * per_block
    largest = count - (cores - 1) * per_core
    buffers, tile = 1, 0
    for buffers in (1, 2):
        room = product.ub_bytes - UB_RESERVED_BYTES
        tile = room // (streams * itemsize * buffers + 4 * temporaries) // 64 * 64
        if tile >= largest:
            break
    if tile < 64:
        raise EmulatorError(
            f"ub_bytes: {product.name} has {product.ub_bytes} B of UB, too small for one tile of 64 elements of an "
            f"element-wise kernel; give the machine a larger UB or choose a real product"
        )
    return ElementwiseTiling(count, cores, per_core, min(tile, -(-largest // 64) * 64), buffers)
