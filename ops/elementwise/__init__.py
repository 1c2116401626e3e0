"""Element-wise kernels: Mul, Cast, SyncBatchNormBackwardReduce."""
