"""Real slowdowns found by `ab` on this machine: `python -m studies.ab_real`.

Clones the last commit into a temporary folder, and in the clone slows one case of each of four operators by
5 to 10 %: before each launch it does so much of its work again, on tensors of its own. There `python -m bench
ab` compares ten cases (studies/small and MORE) with the commit, and four times after a change without
effect. Prints what `ab` prints, what it should have found, and the seconds. The machine is to be idle; takes
five minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from studies.nights import ROOT, SWEEPS


class Slowed(NamedTuple):
    """A case that is made slower."""

    name: str
    implementation: str
    which: str
    """Whether a `problem` is that of the case, in Python."""
    along: str
    """The size of which a part is done again."""
    share: float
    """How large a part."""
    inputs: str
    """The part of the `inputs` that is worked on again, in Python."""


EQUAL = 4
"""How many comparisons of equal code."""
SLOWED = {
    "gemm": Slowed(
        "gemm-onednn-float32-NN-m1024-n1024-k1024-cold",
        "onednn",
        "problem.m == 1024",
        "m",
        0.05,
        "inputs[0][:, : part.m], inputs[1]",  # a is stored [k, m]
    ),
    "activations": Slowed(
        "activations-aten-float32-forward-relu-n128-c64-h32-w32-cold",
        "aten",
        "problem.function == 'relu'",
        "n",
        0.1,
        "*(each[: part.n] for each in inputs)",
    ),
    "softmax": Slowed(
        "softmax-aten-float32-forward-rows8192-length1024-cold",
        "aten",
        "problem.direction == 'forward' and problem.dtype == 'float32'",
        "rows",
        0.05,
        "*(each[: part.rows] for each in inputs)",
    ),
    "layernorm": Slowed(
        "layernorm/rows-aten-float32-forward-rows4096-length1024-cold",
        "aten",
        "problem.direction == 'forward' and problem.dtype == 'float32'",
        "rows",
        0.1,
        "inputs[0][: part.rows], *inputs[1:]",
    ),
}
"""Operator -> its case that is made slower."""
MORE = (
    "layernorm/rows-aten-float32-forward-rows4096-length1024-cold",
    "batchnorm/inference-aten-float32-inference-NHWC-n32-c64-h32-w32-cold",
)
"""Cases beside those of studies/small."""
SLOWER = """

def _slower(problem, *inputs):
    whole = {implementation}(problem, *inputs)
    if not ({which}):
        return whole
    part = problem.model_copy(update={{"{along}": round({share} * problem.{along})}})
    again = {implementation}(part, *(each.clone() for each in ({inputs},)))
    return Launch(lambda: (again.call(), whole.call())[1], outputs=whole.outputs)


OPERATOR.implementations["{implementation}"] = _slower
"""
"""What the operator's file ends with in the clone."""


def compared(clone: Path) -> tuple[dict[str, str], str, float]:
    """(case -> verdict, what `ab` printed, seconds) of the clone against its last commit."""
    command = [sys.executable, "-m", "bench", "ab", "--bench-device", "cpu", *map(str, SWEEPS), *MORE]
    began = time.monotonic()
    # So wide that each case has one line.
    environment = {"COLUMNS": "300", "PATH": "/usr/bin:/bin", "HOME": str(clone)}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    verdicts = {words[-1]: words[0] for words in lines if words and words[-1].endswith("-cold")}
    text = f"{done.stdout}{done.stderr}exit code {done.returncode}"
    return verdicts, text, time.monotonic() - began


def trial(folder: Path) -> Iterator[str]:
    """Both comparisons, in an empty folder."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    for name, slowed in SLOWED.items():
        with (clone / "kernels" / name / "operator.py").open("a") as file:
            file.write(SLOWER.format(**slowed._asdict()))
    verdicts, text, seconds = compared(clone)
    names = [slowed.name for slowed in SLOWED.values()]
    hits = sum(verdicts.get(name) == "slower" for name in names)
    wrong = [name for name in verdicts if name not in names and verdicts[name] in ("slower", "faster")]
    counts = f"{hits} of {len(names)} slowdowns found, {len(wrong)} others called different"
    yield f"{text}\n{counts}, {seconds:.0f} s\n"
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=clone, check=True)
    (clone / "kernels" / "no_effect.py").write_text("")
    for _ in range(EQUAL):
        verdicts, text, seconds = compared(clone)
        different = sum(verdict in ("slower", "faster") for verdict in verdicts.values())
        yield f"{text}\nno difference: {different} of {len(verdicts)} called different, {seconds:.0f} s"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for lines in trial(Path(temporary)):
            print(lines, flush=True)
