"""What the compiler makes of every GEMM kernel of ours, a table for each family:

    python -m tests.kernels.gemm_compiled
    python -m tests.kernels.gemm_compiled --drawn tma parts    some families; a few kernels of each

Variant, data type, layout, configuration, architecture, registers, shared memory, spills, instructions; what
is promised of each, its own file says. Exit code 1 on a fault. With --drawn the seed of the tests' run
chooses (tests/drawing.py); with --all every form of every configuration is compiled (over two hours on two
cores).
`python -m tests.kernels.gemm_<family>_compiled`: one family alone.
"""

import runpy
import sys

FAMILIES = {
    "pointer": "gemm_pointer_compiled",
    "tma": "gemm_tma_compiled",
    "gluon": "gemm_gluon_compiled",
    "parts": "gemm_parts_compiled",
    "turned": "turned_compiled",
    "linear": "linear_compiled",
    "fusion": "fusion_compiled",
    "convolution": "convolution_compiled",
    "attention": "attention_compiled",
}
"""Modules by family. The last four, from layers on, run only if they are asked for."""


def main(families: list[str]) -> int:
    """Run the commands of these families; the number of those that found a fault."""
    bad = 0
    for family in families or ("pointer", "tma", "gluon", "parts", "turned"):
        try:
            runpy.run_module(f"tests.kernels.{FAMILIES[family]}", run_name="__main__")
        except SystemExit as end:
            bad += bool(end.code)
    return bad


if __name__ == "__main__":
    sys.exit(1 if main([argument for argument in sys.argv[1:] if not argument.startswith("-")]) else 0)
