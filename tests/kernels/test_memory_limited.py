"""The memory-limited kernels, interpreted in a process of their own and compiled in this one.

An ordinary run draws a few cases of each kernel, and one process interprets them all, because importing torch
and Triton takes seconds. A deep run interprets and compiles everything.
"""

import pytest

from tests.drawing import covering, is_deep
from tests.kernels.processes import interpreted

pytest.importorskip("triton")

from tests.kernels import (
    activations_compiled,
    batchnorm_compiled,
    fma_compiled,
    latency_compiled,
    layernorm_compiled,
    pooling_compiled,
    quantize_compiled,
    softmax_compiled,
    stream_compiled,
)
from tests.kernels.streaming import Variant, compile_one, faults

COMPILED = {
    "activations": activations_compiled,
    "fma": fma_compiled,
    "batchnorm": batchnorm_compiled,
    "latency": latency_compiled,
    "layernorm": layernorm_compiled,
    "pooling": pooling_compiled,
    "quantize": quantize_compiled,
    "softmax": softmax_compiled,
    "stream": stream_compiled,
}
NAMES = list(COMPILED)


@pytest.mark.parametrize("names", [[name] for name in NAMES] if is_deep() else [NAMES], ids="-".join)
def test_kernels_interpreted(names: list[str]) -> None:
    interpreted(*(f"tests/kernels/{name}_interpreted.py" for name in names))


def compilations() -> list[tuple[Variant, int]]:
    """Every kernel, and of each operator every compute capability; all that is promised in a deep run."""
    drawn = []
    for name, module in COMPILED.items():
        every = [(variant, at) for variant in module.variants() for at in variant.capabilities]
        drawn += covering(every, f"compiled {name}", lambda case: case[0].kernel.fn, lambda case: case[1])
    return drawn


@pytest.mark.parametrize(
    ("variant", "capability"), compilations(), ids=lambda value: getattr(value, "name", f"sm_{value}")
)
def test_compiled_kernels_keep_their_promises(variant: Variant, capability: int) -> None:
    assert not faults(variant, capability, compile_one(variant, capability))
