"""Reports as JSON objects: the same records as the printed reports, complete.

Infinities and NaN are the texts "inf", "-inf" and "nan". Exact numbers are hexadecimal floats with as many
digits as they need; C and ``float.fromhex`` read them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.products import Product
    from ops.reduce_sum.tree import AdditionTree
    from studies.summary import PlanSummary, RunSummary


def hex_text(value: Fraction | float) -> str:
    """A rational number with a power of two below, or any float, as hexadecimal text."""
    if isinstance(value, float):
        return value.hex()
    exponent = value.denominator.bit_length() - 1
    digits = abs(value.numerator)
    places = -(-exponent // 4)
    whole, fraction = divmod(digits << (4 * places - exponent), 1 << (4 * places))
    sign = "-" if value < 0 else ""
    return f"{sign}0x{whole:x}.{fraction:0{places}x}p+0" if places else f"{sign}0x{whole:x}p+0"


def plain(value: Any) -> Any:
    """``value`` in the types strict JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return hex_text(value)
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def product_record(product: Product, *, sources: bool = False) -> dict[str, Any]:
    """All numbers of a product; with ``sources`` also where each comes from."""
    record = product.as_dict()
    if not sources:
        del record["sources"]
    return plain(record)


def _fields(record: Any, *left_out: str) -> dict[str, Any]:
    return {f.name: plain(getattr(record, f.name)) for f in dataclasses.fields(record) if f.name not in left_out}


def plan_record(plan: PlanSummary, *, with_product: bool = True) -> dict[str, Any]:
    """A plan: sizes, UB, workspace, tiling data, and the work of every core."""
    record = _fields(plan, "product", "ub_buffers", "work")
    record["ub_buffers"] = [{"name": name, "bytes": size} for name, size in plan.ub_buffers]
    record["fidelity"] = plan.product.fidelity
    record["work"] = [plain(w) for w in plan.work]
    return {"product": product_record(plan.product), **record} if with_product else record


def run_record(run: RunSummary, *, seconds: float, compile_seconds: float) -> dict[str, Any]:
    """A run: what `plan_record` has, every launch, and every value of every output.

    Args:
        run: The run.
        seconds: Of the whole command.
        compile_seconds: Of them, compiling.
    """
    record = _fields(run, "product", "plan", "outputs", "seconds")
    return {
        "operator": "aclnnBatchNormReduceBackward",
        "product": product_record(run.product),
        "fidelity": run.product.fidelity,
        **record,
        "plan": None if run.plan is None else plan_record(run.plan, with_product=False),
        "outputs": {o.name: _output_record(o) for o in run.outputs},
        "seconds": {"operator": run.seconds, "command": seconds, "compiling": compile_seconds},
    }


def _output_record(output: Any) -> dict[str, Any] | None:
    if output.values is None:
        return None
    return {
        **_fields(output, "name"),
        "values_hex": [value.hex() for value in output.values],
        "rounded_hex": [value.hex() for value in output.rounded],
    }


def tree_record(tree: AdditionTree, product: Product, *, text: bool) -> dict[str, Any]:
    """An addition tree's statistics; with ``text`` the whole sum as one expression."""
    return {
        "product": product_record(product),
        "fidelity": product.fidelity,
        "shape": list(tree.shape),
        "channel": tree.channel,
        "leaves": tree.leaves,
        "pads": tree.pads,
        "height": tree.height,
        "leaves_per_level": plain(tree.leaves_per_level()),
        "pads_per_level": plain(tree.pads_per_level()),
        "stages": [{"name": name, "additions": count} for name, count in tree.stages()],
        "text": tree.text() if text else None,
    }


def products_record(products: list[Product], unsupported: Mapping[str, str]) -> dict[str, Any]:
    """All products and the ones refused, with the reason."""
    return {
        "products": [product_record(p) for p in products],
        "unsupported": [{"name": name, "reason": reason} for name, reason in unsupported.items()],
    }
