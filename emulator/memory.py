"""Global memory (GM) of one device: named allocations that never overlap, and the UB of a core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.core import GlobalTensor
from emulator.errors import EmulatorError

GM_ALIGN_BYTES = 512
"""Alignment of allocations; 512 B is the alignment asc-devkit advises for full bandwidth (assumed here)."""
GM_BASE = 1 << 32
UB_POISON = 0xFF
"""Byte that fills the UB before a kernel runs: NaN in fp32, fp16 and bf16, so stale reads show."""

DEVICE_DTYPES = ("float32", "uint16", "int16")


class GlobalMemory:
    """Hands out device addresses for arrays; the arrays stay where they are.

    A tensor is one-dimensional: fp32 as float32, fp16 bits as uint16, bf16 bits as int16. The memory is kept
    alive as long as this object.
    """

    def __init__(self) -> None:
        self._next = GM_BASE
        self._arrays: dict[str, NDArray[Any]] = {}

    def bind(self, name: str, array: NDArray[Any]) -> GlobalTensor:
        """Give a C-contiguous array a device address; no copy is made. Names must be new."""
        if name in self._arrays:
            raise EmulatorError(f"global memory: {name!r} is allocated already; choose another name")
        if array.dtype.name not in DEVICE_DTYPES or not array.flags.c_contiguous:
            raise EmulatorError(
                f"global memory: {name}: got {array.dtype}, contiguous {array.flags.c_contiguous}; "
                f"allowed: contiguous arrays of {', '.join(DEVICE_DTYPES)}"
            )
        tensor = GlobalTensor(array.ctypes.data, array.size, array.itemsize, self._next)
        self._next += -(-max(array.nbytes, 1) // GM_ALIGN_BYTES) * GM_ALIGN_BYTES
        self._arrays[name] = array.reshape(-1)
        return tensor

    def alloc(self, name: str, count: int, dtype: Any = np.float32) -> GlobalTensor:
        """A new allocation of ``count`` elements; contents are NaN (every byte 0xFF), as nothing wrote them."""
        dtype = np.dtype(dtype)
        return self.bind(name, np.full(count * dtype.itemsize, UB_POISON, np.uint8).view(dtype))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The contents of an allocation, shared with the device."""
        return self._arrays[name]


def unified_buffer(ub_bytes: int) -> NDArray[np.uint8]:
    """A poisoned UB of ``ub_bytes``."""
    return np.full(ub_bytes, UB_POISON, np.uint8)
