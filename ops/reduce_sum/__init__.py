"""ReduceSum: canonical shape, tiling, the instruction kernel and the fused fast engine."""
