"""Reading and writing host memory at addresses a caller passed, without crashing on a bad one.

On Linux the kernel copies (process_vm_readv and its twin on our own process) and reports addresses that are not
mapped. Elsewhere, or where a sandbox forbids the call, it is a plain memory copy, as the real runtime's is.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

MOST_ONCE = 1 << 30
"""Bytes one call of the kernel copies at most here (it stops short of 2 GiB)."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class BadAddress(Exception):
    """The host address is not mapped; the text gives it."""


@cache
def _kernel_copies() -> tuple[Any, Any] | None:
    """(process_vm_readv, process_vm_writev), or None where they do not work."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        pair = libc.process_vm_readv, libc.process_vm_writev
    except (OSError, AttributeError):
        return None
    for function in pair:
        function.restype = ctypes.c_ssize_t
        function.argtypes = (ctypes.c_int, *(ctypes.c_void_p, ctypes.c_ulong) * 2, ctypes.c_ulong)
    probe, copy = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    for function in pair:
        if _transfer(function, copy.ctypes.data, probe.ctypes.data, 8) != 8:
            return None
    return pair


def _transfer(function: Any, ours: int, theirs: int, size: int) -> int:
    here, there = _Vector(ours, size), _Vector(theirs, size)
    return int(function(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def _copy(which: int, array: Bytes, address: int) -> None:
    pair = _kernel_copies()
    if pair is None:
        pointers = (array.ctypes.data, address) if which == 0 else (address, array.ctypes.data)
        ctypes.memmove(*pointers, array.size)
        return
    done = 0
    while done < array.size:
        size = min(array.size - done, MOST_ONCE)
        moved = _transfer(pair[which], array.ctypes.data + done, address + done, size)
        if moved <= 0:
            code = ctypes.get_errno()
            raise BadAddress(f"{address + done:#x}, {'not mapped' if code == errno.EFAULT else os.strerror(code)}")
        done += moved


def read(address: int, into: Bytes) -> None:
    """Copy ``into.size`` bytes from a host address into a contiguous array. Raises BadAddress."""
    _copy(0, into, address)


def write(address: int, data: Bytes) -> None:
    """Copy a contiguous array to a host address. Raises BadAddress; what came before the bad page is written."""
    _copy(1, data, address)
