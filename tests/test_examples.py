"""What `pytest bench` checks: every implementation that runs here, at a few examples of its operator."""

from pathlib import Path

import kernels
from bench.device.detect import detect
from tests.drawing import drawn, is_deep
from tests.processes import pytested

BENCH = Path(__file__).parents[1] / "bench"


def test_examples() -> None:
    """On a CPU of a few operators: the tests' own process checks all of them, and what Inductor compiles.

    tests/kernels/test_every_operator.py and test_inductor.py.
    """
    words: list[str] = []  # of a deep run all: the process inherits ROOFBENCH_DEEP
    if detect("auto").kind == "cpu" and not is_deep():
        operators = drawn(kernels.names(), 4, "operators of examples")
        words += ["-k", f"({' or '.join(f'[{name}-' for name in operators)}) and not inductor"]
    code, said = pytested(str(BENCH), "-q", *words)
    assert code == 0, said[-20_000:]
    assert " passed" in said and "median" not in said.lower(), "nothing is timed"
