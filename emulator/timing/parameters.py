"""The numbers of the timing model: one TOML file per NpuArch beside the products, each number with its source."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from emulator.errors import EmulatorError, explain
from emulator.products import Product
from emulator.products.model import SourceKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

FROM_PRODUCT = (
    ("clock_mhz", "MHz"),
    ("ddr_bytes_per_cycle", "B per cycle and core, from HBM"),
    ("l2_read_bytes_per_cycle", "B per cycle and core, from L2"),
)
"""Fields of the product the model reads as well, with their units."""

MAY_BE_ZERO = ("fixed_cycles", "slope_cycles", "overhead_bytes", "_us", "_ns", "row_cycles", "issue_cycles", "per_core")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One number of the model."""

    name: str
    value: float
    unit: str
    kind: SourceKind
    source: str


@dataclass(frozen=True)
class TimingParameters:
    """All numbers of the model for one product, by name."""

    product: str
    parameters: Mapping[str, Parameter]

    def __getitem__(self, name: str) -> float:
        return self.parameters[name].value

    @property
    def changes(self) -> tuple[str, ...]:
        """What was set by the user, as ``name=value``."""
        return tuple(f"{p.name}={p.value:g}" for p in self.parameters.values() if p.source == "what-if")

    def kind(self, name: str) -> str:
        """measured, published or assumed."""
        return self.parameters[name].kind

    def replace(self, changes: Mapping[str, float]) -> TimingParameters:
        """The same with some numbers changed; their kind becomes assumed, their source "what-if".

        Raises EmulatorError for an unknown name or a value that is not a finite number in range.
        """
        out = dict(self.parameters)
        for name, value in changes.items():
            if name not in out:
                near = difflib.get_close_matches(name, out, n=3)
                remedy = (
                    f"did you mean {' or '.join(near)}?" if near else "list them with: aicore products NAME --timing"
                )
                raise EmulatorError(explain("set", got=name, allowed="a number of the timing model", remedy=remedy))
            zero = any(word in name for word in MAY_BE_ZERO)
            low = "at least 0" if zero else "greater than 0"
            share = name.endswith(("efficiency", "share"))
            if not math.isfinite(value) or value < 0 or (value == 0 and not zero) or (share and value > 1):
                allowed = f"a finite number {low}" + (" and at most 1" if share else "")
                raise EmulatorError(explain(f"set {name}", got=value, allowed=allowed, remedy="pass such a value"))
            if name in ("queue_depth", "packet_bytes", "align_bytes") and (value < 1 or value != int(value)):
                allowed = "a whole number, at least 1"
                raise EmulatorError(explain(f"set {name}", got=value, allowed=allowed, remedy="pass such a value"))
            out[name] = replace(out[name], value=float(value), kind="assumed", source="what-if")
        return TimingParameters(self.product, out)


def parse_changes(texts: Iterable[str]) -> dict[str, float]:
    """``name=value`` texts of the command line as numbers. Raises EmulatorError for another form."""
    out = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError
            out[name.strip()] = float(value)
        except ValueError:
            allowed = "name=number, for example hbm_gbps=1200"
            raise EmulatorError(explain("set", got=text, allowed=allowed, remedy="write it so")) from None
    return out


def timing_parameters(product: Product, changes: Mapping[str, float] | None = None) -> TimingParameters:
    """The numbers for ``product``, with ``changes`` by name applied."""
    out: dict[str, Parameter] = {}
    data = _file(product.npu_arch)
    elsewhere = product.family not in data["measured_on"]
    for name, table in data.items():
        if name in ("measured_on", "vector", "product"):
            continue
        own = table.get("soc", {}).get(product.name, {})
        row = {**{k: v for k, v in table.items() if k != "soc"}, **own}
        out[name] = _parameter(name, row["value"], row["unit"], row["kind"], row["source"], elsewhere)
    for op, row in data["vector"].items():
        for part, unit in (("fixed", "cycles per instruction"), ("slope", "cycles per repeat without conflicts")):
            name = f"{op}_{part}_cycles"
            out[name] = _parameter(name, row[part], unit, row["kind"], row["source"], elsewhere)
    for name, unit in FROM_PRODUCT:
        kind, text = product.sources[name].kind, product.sources[name].text
        if name in data.get("product", {}) and text != "what-if" and not elsewhere:
            kind, text = data["product"][name]["kind"], data["product"][name]["source"]
        out[name] = Parameter(name=name, value=float(getattr(product, name)), unit=unit, kind=kind, source=text)
    parameters = TimingParameters(product.name, out)
    return parameters.replace(changes) if changes else parameters


def _parameter(name: str, value: Any, unit: str, kind: str, source: str, elsewhere: bool) -> Parameter:
    if kind not in get_args(SourceKind):
        allowed = ", ".join(get_args(SourceKind))
        raise EmulatorError(explain(f"timing file: {name}", got=kind, allowed=allowed, remedy="correct the file"))
    if kind == "measured" and elsewhere:
        kind, source = "assumed", f"carried over from another product: {source}"
    return Parameter(name=name, value=float(value), unit=unit, kind=kind, source=source)  # type: ignore[arg-type]


@cache
def _file(npu_arch: int) -> dict[str, Any]:
    text = files("emulator.products").joinpath(f"timing_{npu_arch}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
