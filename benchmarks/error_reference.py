"""The reference numbers of docs/rounding-error.md: shares of the steps, cancellation, growth over n.

Run it: python benchmarks/error_reference.py [shares] [cancellation] [growth]
"""

import sys

import numpy as np

from emulator import formats
from studies.accuracy import cancellation_study, growth_study
from studies.attribution import error_ledger


def shares() -> None:
    """N = 4096, mean / sigma = 3, 12 channels: rms share of each step in gradWeight, outputs in the IO dtype."""
    rng = np.random.default_rng(0)
    wide = {"input": rng.standard_normal((16, 12, 16, 16)) + 3}
    wide["grad_out"] = rng.standard_normal(wide["input"].shape) + 0.3 * (wide["input"] - 3)
    mean, invstd = np.full(12, 3, np.float32), np.ones(12, np.float32)
    for name in ("float16", "bfloat16", "float32"):
        dy, x = (wide[k].astype(formats.get(name).dtype) for k in ("grad_out", "input"))
        totals = error_ledger(dy, x, mean, invstd, master=wide).step_totals("grad_weight")
        cells = (f"{s} {t['relative_rms']:.1e}" for s, t in totals.items() if t["absolute"])
        print(f"{name:<9}", ", ".join(cells))


def cancellation() -> None:
    """|mean| / sigma, N = 25088, fp32: error of gradWeight, cann against centred."""
    for p in cancellation_study().points:
        cann, centred = p.error["cann"], p.error["centred"]
        ratio, bound = cann / centred, p.condition * 2**-24
        print(f"{p.ratio:<8g} cann {cann:.1e}  centred {centred:.1e}  ratio {ratio:<7.3g} kappa*u {bound:.1e}")


def growth() -> None:
    """Mean backward error over n, 20 trials."""
    for distribution in ("uniform", "normal"):
        study = growth_study(distribution=distribution)  # type: ignore[arg-type]
        for p in study.points:
            print(f"{distribution:<8} {p.n:<8} {p.order:<12} {p.error:.1e}")
        print(distribution, {p.order: round(study.slope(p.order), 2) for p in study.points})


for table in sys.argv[1:] or ["shares", "cancellation", "growth"]:
    {"shares": shares, "cancellation": cancellation, "growth": growth}[table]()
