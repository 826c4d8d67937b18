"""What `pytest bench` checks: every implementation that runs here, at a few examples of its operator."""

from pathlib import Path

import kernels
from bench.device.detect import detect
from tests.drawing import drawn, is_deep
from tests.pytested import pytested

BENCH = Path(__file__).parents[1] / "bench"


def test_examples() -> None:
    """On a CPU of a few operators, since tests/kernels/test_every_operator.py has all of them there."""
    names = kernels.names()
    if detect("auto").kind == "cpu":
        names = drawn(names, 4, "operators of examples")
    chosen = ["-k", " or ".join(f"[{name}-" for name in names)]
    code, said = pytested(str(BENCH), "-q", *chosen, *["--bench-all-examples"] * is_deep())
    assert code == 0, said[-20_000:]
    assert " passed" in said and "median" not in said.lower(), "nothing is timed"
