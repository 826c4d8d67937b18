"""What the compiler makes of every memory-limited kernel, a table for each operator:

    python -m tests.kernels.memory_limited_compiled

Registers, spills, shared memory, 16-byte loads and stores, instructions an element, for sm_70, 80, 90 and
100. Exit code 1 on a fault. The tests spread tiles over architectures; with --all each is compiled for every
one (a quarter of an hour on two cores). `python -m tests.kernels.<operator>_compiled`: one operator alone.
"""

import runpy
import sys

OPERATORS = (
    "activations",
    "fma",
    "batchnorm",
    "fusion",
    "layernorm",
    "linear",
    "pooling",
    "quantize",
    "softmax",
    "stream",
)


def main() -> int:
    """Run each operator's own command; the number of those that found a fault."""
    bad = 0
    for operator in OPERATORS:
        print(f"{operator}:")
        try:
            runpy.run_module(f"tests.kernels.{operator}_compiled", run_name="__main__")
        except SystemExit as end:
            bad += bool(end.code)
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
