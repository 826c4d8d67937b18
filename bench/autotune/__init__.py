"""How launches are made ready: compiled, tuned, and given up. Kernels and the worker share it."""
