"""The operator: argument checks and the pipeline of kernels."""
