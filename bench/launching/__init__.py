"""How launches are made ready: compiled, tuned, captured and given up. Kernels and the worker share it."""
