"""Time of the exact error attribution beside the fast engine's, on the same data in the same run."""

import time

import numpy as np

import ops
from studies.attribution import error_ledger

SHAPE = (32, 64, 56, 56)
rng = np.random.default_rng(0)
dy, x = (rng.standard_normal(SHAPE, np.float32).astype(np.float16) for _ in range(2))
data = dy, x, np.full(64, 0.1, np.float32), np.ones(64, np.float32)

error_ledger(*data)  # compiles
engine, attribution = [], []
for _ in range(9):
    start = time.perf_counter()
    ops.batch_norm_reduce_backward(*data)
    engine.append(time.perf_counter() - start)
    start = time.perf_counter()
    ledger = error_ledger(*data)
    attribution.append(time.perf_counter() - start)
fast, exact = (float(np.median(t)) for t in (engine, attribution))
print(f"fast engine        {1e3 * fast:8.1f} ms (median of 9)")
print(f"exact attribution  {1e3 * exact:8.1f} ms, {exact / fast:.1f} times that; allowed: 20")
print(
    f"residual 0 exactly: {ledger.residual_is_zero}, channels {ledger.attributed['grad_weight']} of {ledger.channels}"
)
raise SystemExit(0 if ledger.residual_is_zero and exact < 20 * fast else 1)
