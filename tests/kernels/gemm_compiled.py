"""What the compiler makes of every GEMM kernel of ours, a table for each family:

    python -m tests.kernels.gemm_compiled

Variant, data type, layout, configuration, architecture, registers, shared memory, spills, instructions; what
is promised of each, its own file says. Exit code 1 on a fault. With --all every form of every configuration
is compiled (over two hours on two cores). `python -m tests.kernels.gemm_<family>_compiled`: one family alone.
"""

import runpy
import sys

FAMILIES = ("pointer", "tma", "parts")


def main() -> int:
    """Run each family's own command; the number of those that found a fault."""
    bad = 0
    for family in FAMILIES:
        try:
            runpy.run_module(f"tests.kernels.gemm_{family}_compiled", run_name="__main__")
        except SystemExit as end:
            bad += bool(end.code)
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
