"""The CPU backend: Numba kernels in readable files, spread over a small thread pool."""
