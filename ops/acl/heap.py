"""Device memory: host memory with canaries around every allocation, poisoned, and remembered after it is freed.

A device pointer is the address of real memory, so C code may do pointer arithmetic on it, and copies cost one
memcpy. Nothing here calls another module of ops.acl; the runtime holds one `Heap` for all devices.
"""

from __future__ import annotations

import bisect
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

ALIGN_BYTES: Final = 64
"""Alignment of device pointers (assumed; the runtime documents 64 for aclrtMalloc)."""
POISON: Final = 0xFF
"""Fills new memory: NaN in fp32, fp16 and bf16, so reads of what nobody wrote show."""
CANARY: Final = (np.arange(ALIGN_BYTES, dtype=np.uint8) * 37 + 0x5A).astype(np.uint8)
"""Bytes before and after every allocation; a write outside an allocation changes them."""
REMEMBERED: Final = 1024
"""Freed allocations that are remembered, so that a freed pointer is told from a foreign one."""
ASK_HOST_BYTES: Final = 64 * 1024 * 1024
"""From this size on an allocation is refused if the host has not that much memory available."""

Kind = Literal["device", "host"]


@dataclass(eq=False)
class Allocation:
    """One live (or, once freed, dead) allocation; ``bytes`` is the user's part, without canaries."""

    pointer: int
    size: int
    device: int
    kind: Kind
    what: str
    raw: Bytes = field(repr=False)
    bytes: Bytes = field(repr=False)
    owned: bool = False
    """Freed by an object of ours, so never a leak of the program."""
    alive: bool = True

    def damaged(self) -> tuple[Literal["before", "after"], ...]:
        """Sides whose canary was overwritten."""
        start = self.pointer - self.raw.ctypes.data
        sides: list[Literal["before", "after"]] = []
        if not np.array_equal(self.raw[start - ALIGN_BYTES : start], CANARY):
            sides.append("before")
        if not np.array_equal(self.raw[start + self.size : start + self.size + ALIGN_BYTES], CANARY):
            sides.append("after")
        return tuple(sides)


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Memory that was not freed when its device was reset or the runtime finalized, or is damaged."""

    pointer: int
    size: int
    device: int
    kind: Kind
    what: str
    """Which call made it."""
    damaged: tuple[Literal["before", "after"], ...]
    """Sides on which something wrote outside the allocation."""

    def __str__(self) -> str:
        damage = f", canary {' and '.join(self.damaged)} it overwritten" if self.damaged else ""
        place = f"device {self.device}" if self.kind == "device" else "host"
        return f"{self.what}: {self.size} bytes at {self.pointer:#x} on {place} not freed{damage}"


class OutOfMemory(Exception):
    """There is no room; the text says whose limit it is."""


class Heap:
    """All allocations, by address. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._live: dict[int, Allocation] = {}
        self._sorted: list[int] = []
        self._freed: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._used: dict[int, int] = {}

    def allocate(
        self, size: int, *, device: int, kind: Kind, what: str, limit: int | None = None, owned: bool = False
    ) -> Allocation:
        """New memory of ``size`` >= 1 bytes. Raises OutOfMemory for the device's limit or the host's."""
        with self._lock:
            used = self._used.get(device, 0) if kind == "device" else 0
            if limit is not None and kind == "device" and used + size > limit:
                raise OutOfMemory(f"{limit - used} of {limit} bytes of device memory are free")
            free = available_bytes() if size >= ASK_HOST_BYTES else None
            if free is not None and size > free:
                raise OutOfMemory(f"device memory is memory of this host, which has {free} bytes available")
            try:
                raw = np.empty(size + 3 * ALIGN_BYTES, np.uint8)
            except (MemoryError, ValueError, OverflowError) as error:
                raise OutOfMemory(f"the host refuses the allocation: {error}") from None
            start = ALIGN_BYTES + -raw.ctypes.data % ALIGN_BYTES
            user = raw[start : start + size]
            raw[start - ALIGN_BYTES : start] = CANARY
            raw[start + size : start + size + ALIGN_BYTES] = CANARY
            user[:] = POISON
            new = Allocation(raw.ctypes.data + start, size, device, kind, what, raw, user, owned)
            self._live[new.pointer] = new
            bisect.insort(self._sorted, new.pointer)
            self._freed.pop(new.pointer, None)
            if kind == "device":
                self._used[device] = used + size
            return new

    def free(self, allocation: Allocation) -> None:
        """Give an allocation back; a second time does nothing."""
        with self._lock:
            if not allocation.alive:
                return
            allocation.alive = False
            del self._live[allocation.pointer]
            del self._sorted[bisect.bisect_left(self._sorted, allocation.pointer)]
            self._freed[allocation.pointer] = (allocation.size, allocation.what)
            if len(self._freed) > REMEMBERED:
                self._freed.popitem(last=False)
            if allocation.kind == "device":
                self._used[allocation.device] -= allocation.size

    def starting_at(self, pointer: int) -> Allocation | None:
        """The live allocation that begins at ``pointer``."""
        with self._lock:
            return self._live.get(pointer)

    def holding(self, pointer: int) -> Allocation | None:
        """The live allocation ``pointer`` points into."""
        with self._lock:
            at = bisect.bisect_right(self._sorted, pointer) - 1
            if at < 0:
                return None
            found = self._live[self._sorted[at]]
            return found if pointer < found.pointer + found.size else None

    def touching(self, pointer: int, size: int) -> Allocation | None:
        """A live allocation that shares a byte with [pointer, pointer + size)."""
        with self._lock:
            found = self.holding(pointer)
            if found is not None:
                return found
            at = bisect.bisect_left(self._sorted, pointer)
            if at < len(self._sorted) and self._sorted[at] < pointer + size:
                return self._live[self._sorted[at]]
            return None

    def describe(self, pointer: int) -> str:
        """What is known of an address: for messages."""
        with self._lock:
            inside = self.holding(pointer)
            if inside is not None:
                return f"{pointer:#x}, byte {pointer - inside.pointer} of the {inside.size} at {inside.pointer:#x}"
            if pointer in self._freed:
                size, what = self._freed[pointer]
                return f"{pointer:#x}, freed memory ({size} bytes of {what})"
            return f"{pointer:#x}, an address no allocation holds"

    def live(self, device: int | None = None) -> list[Allocation]:
        """Live allocations in address order (of one device)."""
        with self._lock:
            found = [self._live[p] for p in self._sorted]
        return [a for a in found if device is None or (a.device == device and a.kind == "device")]

    def used_bytes(self, device: int) -> int:
        """Bytes of device memory in use."""
        with self._lock:
            return self._used.get(device, 0)

    def leaks(self, device: int | None = None) -> tuple[Leak, ...]:
        """Live allocations nobody but the program frees, and those with a damaged canary."""
        return tuple(
            Leak(pointer=a.pointer, size=a.size, device=a.device, kind=a.kind, what=a.what, damaged=a.damaged())
            for a in self.live(device)
            if not a.owned or a.damaged()
        )


def available_bytes() -> int | None:
    """Memory a process can still get on this host, its control group counted; None where nobody says."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            found.append(max(int(limit) - used + int(stat.get("inactive_file", 0)), 0))
    except (OSError, ValueError, IndexError):
        pass
    if not found and hasattr(os, "sysconf"):
        names: Any = os.sysconf_names
        if "SC_AVPHYS_PAGES" in names:
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found) if found else None
