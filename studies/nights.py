"""Real nights in small: `python -m studies.nights DIR [NIGHTS [SLOWED [OPERATOR]]]`.

Ten nights unless told otherwise: `python -m bench nightly` on this machine's CPU over a few small sweeps
(studies/small), a minute each, into DIR. Then three from a copy of the checkout in which one OPERATOR
(activations, softmax) takes 8 % longer: before each launch it does as much work once more, on tensors of its
own. Prints what each night said. In the first nights nothing may be alarmed, in the last only that operator.
DIR keeps the rows, summaries and JSON of every night; what is there already are the nights before.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SWEEPS = sorted(path.relative_to(ROOT) for path in (Path(__file__).parent / "small").glob("*.yaml"))
BUDGET_S = 60
SLOWER = """

def _slower(problem: {problem}, *inputs: torch.Tensor) -> Launch:
    part = problem.model_copy(update={{"{along}": round(0.08 * problem.{along})}})
    whole, again = aten(problem, *inputs), aten(part, *(one[: part.{along}].clone() for one in inputs))
    return Launch(lambda: (again.call(), whole.call())[1], outputs=whole.outputs)


OPERATOR.implementations["aten"] = _slower
"""
"""What the operator's file ends with in the copy."""
ALONG = {"activations": ("Activation", "n"), "softmax": ("Softmax", "rows")}
"""The class of its problems, and the size of which 8 % are done twice."""


def copied(folder: Path) -> Path:
    """The checkout's own files, committed or not, in a new folder."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("results/reference"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def night(checkout: Path, folder: Path, name: str) -> dict[str, Any]:
    """One run of the command in this checkout; its JSON, with its exit code and seconds."""
    told = folder / f"{name}.json"
    command = [sys.executable, "-m", "bench", "nightly", "--bench-device", "cpu"]
    command += ["--bench-results", str(folder / "results"), "--bench-budget", str(BUDGET_S)]
    command += [word for sweep in SWEEPS for word in ("--bench-sweep", str(sweep))]
    command += ["--summary", str(folder / f"{name}.md"), "--json", str(told)]
    began = time.monotonic()
    with (folder / f"{name}.txt").open("w") as said:
        code = subprocess.run(command, cwd=checkout, stdout=said, stderr=subprocess.STDOUT).returncode
    found: dict[str, Any] = json.loads(told.read_text())
    return found | {"code": code, "seconds": time.monotonic() - began}


def told(name: str, found: dict[str, Any]) -> Iterator[str]:
    """A line for the night, and one for each step that stands open."""
    (device,) = found["devices"]
    yield f"{name}: exit code {found['code']}, {found['seconds']:.0f} s: {device['in_short']}"
    for step in device["steps"]:
        new = "new" if step["new"] else f"since {step['since']}"
        yield (
            f"    {step['direction'].upper()} {step['kind']} {step['name']}: {step['effect_percent']:+.1f} % "
            f"(noise {step['noise_percent']:.1f} %), {new}"
        )


def main(folder: Path, nights: int = 10, slowed: int = 3, operator: str = "activations") -> None:
    """So many nights of this checkout, then of a slower copy."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    problem, along = ALONG[operator]
    slower = copied(folder / f"slower-{operator}")
    with (slower / f"kernels/{operator}/operator.py").open("a") as file:
        file.write(SLOWER.format(problem=problem, along=along))
    before = len(list(folder.glob("night-*.json")))
    for number in range(1, nights + slowed + 1):
        name = f"night-{before + number:02}" + ("" if number <= nights else f"-slower-{operator}")
        found = night(ROOT if number <= nights else slower, folder, name)
        for line in told(name, found):
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(given) for given in sys.argv[2:4]), *sys.argv[4:5])
