"""Code that relies on the insides of PoCL: outlined kernels, batches, worker threads, affinity."""
