"""What a product is: a frozen record of one SoC's numbers, each with its source."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import numbers
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from emulator.errors import ProductError, explain

DType: TypeAlias = Literal["float32", "float16", "bfloat16"]
SourceKind: TypeAlias = Literal["published", "measured", "assumed"]

UB_BLOCK_BYTES: Final = 32
"""Bytes of one UB data block, on every product (`ubblock_size` of every ini)."""

MAX_UB_BYTES: Final = 16 * 1024 * 1024
"""Largest UB a what-if machine may have. A limit of this emulator, not of any hardware."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a value comes from: how sure it is (`kind`) and the place it was read (`text`)."""

    kind: SourceKind
    text: str


@dataclass(frozen=True, kw_only=True)
class Product:
    """One SoC as tiling, launch and timing see it.

    Get one with `emulator.products.get`; change one with `replace`. Building one with a value out of range
    raises `ProductError`. `sources` says for every field but the names and remarks where it was read; it
    takes no part in comparison and hashing.

    Attributes:
        name: SoC version string, for example ``Ascend950PR_9589``.
        family, series: Product family, and the name the operator's document uses for it.
        npu_arch: ``__NPU_ARCH__``: 1001 (Atlas training), 2201 (Atlas A2 and A3) or 3510 (Ascend 950).
        vector_cores: Cores a pure vector operator is launched on: `vector_core_cnt` of the ini on split
            chips, `ai_core_cnt` on arch 1001, whose AI core holds its own vector unit.
        ai_cores: `ai_core_cnt` of the ini.
        ub_bytes: Unified Buffer of one core in bytes, as tiling code is told (`ub_size`).
        clock_mhz: Core clock in MHz (`vec_freq` if the ini has it, else `cube_freq`).
        l2_bytes: L2 cache of the device in bytes.
        hbm_bytes: Device memory in bytes; None where the ini leaves it blank.
        ddr_bytes_per_cycle, l2_read_bytes_per_cycle, l2_write_bytes_per_cycle: Rates between device memory
            or L2 and one vector core, in bytes per cycle. Scheduler hints of the ini, not measured
            capacities.
        ub_to_l2_bytes_per_cycle, ub_to_ddr_bytes_per_cycle: Rates from the UB of one vector core, in bytes
            per cycle.
        ai_core_ddr_bytes_per_cycle, ai_core_ub_to_l2_bytes_per_cycle, ai_core_ub_to_ddr_bytes_per_cycle:
            The same from the ini's AI-core section, in bytes per cycle of one AI core. The L2 rates do not
            differ between the sections. `ai_core_ddr_bytes_per_cycle * ai_cores` is the device's total.
        ub_bank_count, ub_bank_bytes, ub_bank_groups: Banks of the physical UB, bytes of one bank, and
            groups the banks are split into.
        dtypes: Element types the operator takes on this product.
        overflow_mode: What half-width casts and arithmetic do on overflow when the program does not choose.
        system_workspace_bytes: Bytes an operator's workspace holds before its own part
            (`RESERVED_WORKSPACE`).
        event_ids: Hardware event IDs per pair of pipes: 0 to ``event_ids - 1``.
        hard_sync_all: Whether SyncAll exists in hardware; otherwise it polls flags in global memory.
        fidelity: ``source``: the addition order of ReduceSum was read in the vendor's source for this
            product. ``model``: the kernel is closed, and a documented template stands in for it.
        fidelity_note: One sentence on `fidelity` for the reader of a result.
        empty_tensor: What the operator leaves in its outputs when an input has no elements.
        changes: What `replace` changed, oldest first; empty for a real product.
        sources: Field name to source.
    """

    name: str
    family: str
    series: str
    npu_arch: int
    vector_cores: int
    ai_cores: int
    ub_bytes: int
    clock_mhz: float
    l2_bytes: int
    hbm_bytes: int | None
    ddr_bytes_per_cycle: float
    l2_read_bytes_per_cycle: float
    l2_write_bytes_per_cycle: float
    ub_to_l2_bytes_per_cycle: float
    ub_to_ddr_bytes_per_cycle: float
    ai_core_ddr_bytes_per_cycle: float
    ai_core_ub_to_l2_bytes_per_cycle: float
    ai_core_ub_to_ddr_bytes_per_cycle: float
    ub_bank_count: int
    ub_bank_bytes: int
    ub_bank_groups: int
    dtypes: tuple[DType, ...]
    overflow_mode: Literal["infnan", "saturation"]
    system_workspace_bytes: int
    event_ids: int
    hard_sync_all: bool
    fidelity: Literal["source", "model"]
    fidelity_note: str
    empty_tensor: Literal["zeros", "untouched"]
    changes: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = check(f"{self.name or 'product'}.{name}", getattr(self, name))
            object.__setattr__(self, name, value)
        if self.ub_bank_count % self.ub_bank_groups:
            raise ProductError(
                explain(
                    f"{self.name}.ub_bank_count",
                    got=self.ub_bank_count,
                    allowed=f"a multiple of ub_bank_groups = {self.ub_bank_groups}",
                    remedy="change both together",
                )
            )
        object.__setattr__(self, "changes", tuple(self.changes))
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    def __reduce__(self) -> tuple[Callable[[], Product], tuple[()]]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return functools.partial(Product, **values | {"sources": dict(self.sources)}), ()

    @property
    def label(self) -> str:
        """The line every report prints, with ``what-if:`` and the changes for a machine nobody sells."""
        parts = [
            self.family,
            f"NpuArch {self.npu_arch}",
            f"{self.vector_cores} vector cores",
            f"UB {self.ub_bytes} B",
            f"fidelity: {self.fidelity}",
        ]
        if self.changes:
            parts.append("what-if: " + "; ".join(self.changes))
        return f"{self.name} ({', '.join(parts)})"

    def replace(self, **changes: Any) -> Product:
        """Return a what-if machine: this product with some values changed.

        Args:
            **changes: New values by field name, in the units of the attributes. All fields may change but
                those that say which product this is: name, family, series, npu_arch, fidelity,
                fidelity_note, changes and sources. Nothing else follows a change: a UB of another size
                keeps its bank layout.

        Returns:
            The machine, with one entry such as ``vector_cores 64 -> 40`` appended to `changes` for each
            value that differs, and the source of that value marked as assumed.

        Raises:
            ProductError: A field is unknown or fixed, or a value is of the wrong type or out of range.
        """
        for name in changes:
            if name not in REPLACEABLE:
                near = difflib.get_close_matches(name, REPLACEABLE, n=3)
                remedy = f"did you mean {' or '.join(near)}?" if near else "for another product call get"
                raise ProductError(
                    explain(f"{self.name}.replace", got=name, allowed=", ".join(REPLACEABLE), remedy=remedy)
                )
        new = dataclasses.replace(self, **changes)
        changed = [n for n in changes if getattr(new, n) != getattr(self, n)]
        log = [f"{n} {_show(getattr(self, n))} -> {_show(getattr(new, n))}" for n in changed]
        sources = {**self.sources, **dict.fromkeys(changed, Source(kind="assumed", text="what-if"))}
        return dataclasses.replace(new, changes=(*self.changes, *log), sources=sources)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and `label` in types `json.dumps` takes."""
        out: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out["dtypes"] = list(self.dtypes)
        out["changes"] = list(self.changes)
        out["sources"] = {n: {"kind": s.kind, "text": s.text} for n, s in self.sources.items()}
        out["label"] = self.label
        return out


def _show(value: object) -> str:
    return "/".join(value) if isinstance(value, tuple) else str(value)


_Check: TypeAlias = Callable[[str, Any], Any]


def _refuse(what: str, got: object, allowed: str) -> ProductError:
    return ProductError(explain(what, got=got, allowed=allowed, remedy="pass such a value"))


def _integer(low: int, high: int, multiple: int = 1) -> _Check:
    allowed = f"an integer from {low} to {high}" + (f", a multiple of {multiple}" if multiple > 1 else "")

    def check(what: str, value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise _refuse(what, value, allowed) from None
        if isinstance(value, bool) or not low <= number <= high or number % multiple:
            raise _refuse(what, value, allowed)
        return number

    return check


def _optional(inner: _Check) -> _Check:
    return lambda what, value: None if value is None else inner(what, value)


def _positive(what: str, value: Any) -> float:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise _refuse(what, value, "a finite number greater than 0")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _choice(*allowed: object) -> _Check:
    def check(what: str, value: Any) -> Any:
        if not any(type(value) is type(a) and value == a for a in allowed):
            raise _refuse(what, value, "one of " + ", ".join(map(repr, allowed)))
        return value

    return check


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refuse(what, value, "a text that is not empty")
    return value


def _dtypes(what: str, value: Any) -> tuple[str, ...]:
    known = ("float32", "float16", "bfloat16")
    ok = isinstance(value, (tuple, list)) and len(value) > 0 and all(v in known for v in value)
    if not ok or len(set(value)) < len(value):
        raise _refuse(what, value, f"a tuple of different names out of {', '.join(known)}")
    return tuple(value)


_BYTES: Final = _integer(1, 2**63 - 1)

_CHECKS: Final[Mapping[str, _Check]] = MappingProxyType(
    {
        "name": _text,
        "family": _text,
        "series": _text,
        "npu_arch": _choice(1001, 2201, 3510),
        "vector_cores": _integer(1, 65535),
        "ai_cores": _integer(1, 65535),
        "ub_bytes": _integer(UB_BLOCK_BYTES, MAX_UB_BYTES, UB_BLOCK_BYTES),
        "clock_mhz": _positive,
        "l2_bytes": _BYTES,
        "hbm_bytes": _optional(_BYTES),
        "ddr_bytes_per_cycle": _positive,
        "l2_read_bytes_per_cycle": _positive,
        "l2_write_bytes_per_cycle": _positive,
        "ub_to_l2_bytes_per_cycle": _positive,
        "ub_to_ddr_bytes_per_cycle": _positive,
        "ai_core_ddr_bytes_per_cycle": _positive,
        "ai_core_ub_to_l2_bytes_per_cycle": _positive,
        "ai_core_ub_to_ddr_bytes_per_cycle": _positive,
        "ub_bank_count": _integer(1, 65536),
        "ub_bank_bytes": _integer(UB_BLOCK_BYTES, MAX_UB_BYTES, UB_BLOCK_BYTES),
        "ub_bank_groups": _integer(1, 65536),
        "dtypes": _dtypes,
        "overflow_mode": _choice("infnan", "saturation"),
        "system_workspace_bytes": _integer(0, 2**63 - 1),
        "event_ids": _integer(1, 8),
        "hard_sync_all": _choice(False, True),
        "fidelity": _choice("source", "model"),
        "fidelity_note": _text,
        "empty_tensor": _choice("zeros", "untouched"),
    }
)
"""The check of every field a product file gives."""

DATA_FIELDS: Final = tuple(_CHECKS)
"""Fields a product file must give, in order."""

_WORDS: Final = ("name", "family", "series", "fidelity_note")

SOURCED_FIELDS: Final = tuple(n for n in DATA_FIELDS if n not in _WORDS)
"""Fields that must have a source."""

REPLACEABLE: Final = tuple(n for n in SOURCED_FIELDS if n not in ("npu_arch", "fidelity"))
"""Fields `Product.replace` may change."""
