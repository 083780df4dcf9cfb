"""Compile the kernels for GPUs with the compilers of several vendors; no GPU is needed. See `__main__`."""
