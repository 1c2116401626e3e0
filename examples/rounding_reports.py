"""Four public reports about batch norm's backward reduction, each with the cause the ledger names.

Run it: python examples/rounding_reports.py
"""

import numpy as np

from studies.attribution import error_ledger
from studies.ledger import ErrorLedger


def cause(ledger: ErrorLedger, output: str = "grad_weight") -> str:
    """The step with the largest relative contribution."""
    totals = ledger.step_totals(output)
    step = max(totals, key=lambda s: totals[s]["relative_rms"])
    return f"{step} ({totals[step]['relative_rms']:.1e} of the result)"


def half_overflow() -> None:
    """pytorch/pytorch#195701: inf and nan from batch_norm_backward_reduce with half operands."""
    rng = np.random.default_rng(0)
    dy = (40 + 5 * rng.standard_normal((64, 2, 32, 32))).astype(np.float16)
    x = (3 + rng.standard_normal(dy.shape)).astype(np.float16)
    data = dy, x, np.full(2, 3, np.float32), np.ones(2, np.float32)
    for algorithm in ("torch_cuda", "cann"):
        ledger = error_ledger(*data, algorithm=algorithm, out_dtype="float32")
        first = ledger.overflows[0].text() if ledger.overflows else "finite"
        print(f"  {algorithm:<11} {first}")


def two_formulas() -> None:
    """pytorch/pytorch#57796: sum((x-mu)*dy)*invstd against sum((x-mu)*invstd*dy)."""
    rng = np.random.default_rng(1)
    dy, x = (rng.standard_normal((64, 4, 14, 14)).astype(np.float32) for _ in range(2))
    mean, invstd = x.mean(axis=(0, 2, 3)), np.float32([1, 3, 0.3, 7])
    first = error_ledger(dy, x, mean, invstd, algorithm="centred")
    scaled = ((x - mean[:, None, None]) * invstd[:, None, None]).astype(np.float32)
    second = error_ledger(dy, scaled, np.zeros(4, np.float32), np.ones(4, np.float32), algorithm="centred")
    exact = [float(v) for v in first.exact["grad_weight"]]
    given = [float(v) for v in second.exact["grad_weight"]]
    inputs = max(abs(b - a) / abs(a) for a, b in zip(exact, given, strict=True))
    print(f"  sum((x-mu)*dy)*invstd: largest step {cause(first)}")
    print(f"  sum((x-mu)*invstd*dy): rounding (x-mu)*invstd in each term costs {inputs:.1e}; then {cause(second)}")


def large_mean() -> None:
    """intel/torch-xpu-ops#1429 and others: accuracy is lost when |mean| is large against sigma."""
    rng = np.random.default_rng(2)
    x = (1000 + rng.standard_normal((32, 4, 28, 28))).astype(np.float32)
    dy = (rng.standard_normal(x.shape) + 0.1 * (x - 1000)).astype(np.float32)
    data = dy, x, x.mean(axis=(0, 2, 3), dtype=np.float64).astype(np.float32), np.ones(4, np.float32)
    for algorithm in ("cann", "centred"):
        print(f"  {algorithm:<8} largest step {cause(error_ledger(*data, algorithm=algorithm))}")


def bf16_rows() -> None:
    """pytorch/pytorch#156513: bf16 sums over many rows are wrong; fp32 accumulators are not."""
    rng = np.random.default_rng(3)
    dy = (1 + 0.1 * rng.standard_normal((4096, 4))).astype(np.float32)
    data = dy, dy, np.zeros(4, np.float32), np.ones(4, np.float32)
    for algorithm in ("cann_bf16", "cann"):
        print(f"  {algorithm:<10} largest step {cause(error_ledger(*data, algorithm=algorithm), 'sum_dy')}")


for report in (half_overflow, two_formulas, large_mean, bf16_rows):
    print((report.__doc__ or "").strip())
    report()
