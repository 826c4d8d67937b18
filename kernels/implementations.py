"""Presets of `Implementation`: with them problem.py declares each way to solve its problem in one line."""

from bench.spec import Capability, Dtypes, Implementation

ANY: Capability = (0, 0)
VOLTA: Capability = (7, 0)
AMPERE: Capability = (8, 0)
"""Tensor Cores for tf32, bfloat16 and float64; asynchronous copies."""
ADA: Capability = (8, 9)
"""Tensor Cores for float8, and instructions that convert to it."""
HOPPER: Capability = (9, 0)
"""Bulk tensor copies (TMA), wgmma."""

FLOATS: Dtypes = {"float16": ANY, "bfloat16": ANY, "float32": ANY}
"""What torch's own kernels compute everywhere."""
WITH_FLOAT64: Dtypes = {**FLOATS, "float64": ANY}
TRITON: Dtypes = {"float16": VOLTA, "bfloat16": VOLTA, "float32": VOLTA}
"""What Triton compiles, also for Inductor. It converts bfloat16 itself where the hardware cannot."""
PRODUCTS: Dtypes = {**TRITON, "bfloat16": AMPERE}
"""The same where products are most of the work: tensor cores have bfloat16 from there on."""
LIBRARY: Dtypes = {"float16": (5, 3), "bfloat16": AMPERE, "tf32": AMPERE, "float32": ANY}
"""What cuBLAS multiplies and cuDNN convolves."""


def on_cuda(name: str, summary: str, dtypes: Dtypes = TRITON, on_request: bool = False) -> Implementation:
    """An implementation that runs on GPUs alone."""
    return Implementation(name, summary, ("cuda",), dtypes, on_request=on_request)


def on_cpu(name: str, summary: str, dtypes: Dtypes) -> Implementation:
    """An implementation that runs on CPUs alone."""
    return Implementation(name, summary, ("cpu",), dtypes)


def on_both(name: str, summary: str, dtypes: Dtypes = FLOATS) -> Implementation:
    """An implementation that runs on CPUs and on GPUs."""
    return Implementation(name, summary, ("cpu", "cuda"), dtypes)


def inductor(summary: str, dtypes: Dtypes = TRITON) -> Implementation:
    """`inductor`: what torch.compile generates, Triton for a GPU, C++ for a CPU."""
    return Implementation("inductor", summary, ("cpu", "cuda"), dtypes, cpp_on_cpu=True)
