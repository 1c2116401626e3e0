"""``aicore products``: the table of products, and one product number by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from viz.tables import count, grid, table

if TYPE_CHECKING:
    from emulator.products import Product

SHORT_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def print_products(console: Any, products: Sequence[Product], unsupported: Mapping[str, str]) -> None:
    """All products, then those that are refused."""
    rows = [
        (
            p.name,
            p.family,
            p.npu_arch,
            p.vector_cores,
            count(p.ub_bytes),
            f"{p.clock_mhz:g}",
            " ".join(SHORT_DTYPES[d] for d in p.dtypes),
            p.fidelity,
        )
        for p in products
    ]
    columns = ("SoC", "family", "NpuArch", "cores", "UB (B)", "MHz", "dtypes", "fidelity")
    left = ("SoC", "family", "dtypes", "fidelity")
    console.print(table("Products (cores: vector cores)", columns, rows, left=left))
    refused = [
        (", ".join(name for name, _ in group), reason) for reason, group in groupby(unsupported.items(), _reason)
    ]
    console.print(table("Known, not supported", ("SoC", "reason"), refused, left=("SoC", "reason")))
    console.print(
        "fidelity source: the order of additions was read in the vendor's source; model: a documented template"
    )
    console.print("Every number with its source: aicore products NAME")


def _reason(item: tuple[str, str]) -> str:
    return item[1]


def print_product(console: Any, product: Product) -> None:
    """Every number of one product with its source."""
    fixed = [("Product", product.label), ("Series", product.series), ("Fidelity", product.fidelity_note)]
    console.print(grid(fixed))
    console.print()
    rows = [(name, _show(name, getattr(product, name)), s.kind, s.text) for name, s in product.sources.items()]
    columns = ("field", "value", "kind", "source")
    console.print(table("Numbers", columns, rows, left=("field", "kind", "source")))


def _show(name: str, value: object) -> str:
    if name == "npu_arch":
        return str(value)
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "unpublished" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
