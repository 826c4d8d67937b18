"""Does a row say that a neighbour disturbed it? `python -m studies.contention`, on a CPU, by itself.

The suite's own command measures some cases four times: on a quiet machine, with a process that never rests on
every core, with such processes that come and go, and quiet again. Of the rows whose median a neighbour moved,
how many are flagged; and of the rows without a flag, how far is the farthest off? The second quiet run is the
control: what moves there moved by itself, and no neighbour can be blamed for as much elsewhere.

The cases run without the ceilings, so the flags that need a roof cannot help: a whole run can only flag more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.format import seconds_text
from bench.judge.flags import SUSPECT, flags
from bench.store.parquet import read_rows
from bench.store.schema import Measurement

ROOT = Path(__file__).parents[1]
MOVED = 0.03
"""A median that a neighbour moved by more than this share is affected; one without a flag may not be."""
FLAGGED = 0.95
"""Share of the affected rows that should be flagged."""
WIDTH = 200

SWEEPS = {
    "contention_gemm": """
operator: gemm
implementations: onednn
cases:
  - {m=n=k: [256, 512, 1024], dtype: [float32, bfloat16], layout: NN}
  - {m=n=k: 512, dtype: float64, layout: TN}
plot: {x: m}
""",
    "contention_one_thread": """
operator: gemm
implementations: onednn
threads: one
cases:
  - {m=n=k: [256, 512], dtype: float32, layout: NN}
plot: {x: m}
""",
    "contention_stream": """
operator: stream
implementations: aten
cases:
  - {kind: [copy, read, triad], length: 4194304, dtype: float32}
plot: {x: length}
""",
    "contention_activations": """
operator: activations
implementations: aten
cases:
  - {function: [relu, gelu], direction: forward, n: 64, c: 64, h=w: 16, dtype: [float32, bfloat16]}
plot: {x: n}
""",
}
"""Compute and memory, one thread and all, several data types: 16 cases."""

NEVER_RESTS = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""
COMES_AND_GOES = """
import os, sys, time
while os.getppid() == int(sys.argv[1]):
    until = time.monotonic() + 1
    while time.monotonic() < until:
        pass
    time.sleep(3)
"""
"""Both look at who their parent is: whatever ends this program, killing it included, ends them too."""


@contextmanager
def burning(program: str) -> Iterator[list[int]]:
    """One such process on every core that this one may use, ended with the block; yields their numbers."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            running.append(
                subprocess.Popen(
                    [sys.executable, "-c", program, str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # Ctrl-C reaches them too: what they say of it helps nobody
                )
            )
            os.sched_setaffinity(running[-1].pid, {core})
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def measure(sweeps: Sequence[str], results: Path, seconds: float) -> list[Measurement]:
    """The rows of one run of the suite's command. SystemExit, with what it said, if it leaves no result."""
    words = [sys.executable, "-m", "pytest", "bench/", "--benchmark", "-p", "no:cacheprovider"]
    words += ["-k", "not ceilings", "--bench-device", "cpu", "--bench-results", str(results)]
    words += ["--bench-budget", str(seconds)]
    for sweep in sweeps:
        words += ["--bench-sweep", sweep]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    found = sorted(results.rglob("*.parquet"))
    if not found:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}\nthis run left no result file")
    return [row for path in found for row in read_rows(path)]


# ---- what the rows say


@dataclass(frozen=True)
class Look:
    """One case in one run, against the quiet machine."""

    row: Measurement
    ratio: float
    """Its median over the quiet one's."""
    doubts: tuple[str, ...]
    """The flags that cast doubt on the time."""
    meets: bool
    """Whether its interval and the quiet one's overlap."""

    @property
    def moved(self) -> float:
        """How far the median is off, as a share."""
        return abs(self.ratio - 1)


@dataclass(frozen=True)
class Figures:
    """What is asked of one run."""

    affected: int
    affected_flagged: int
    unflagged: int
    largest: float
    """Of the unflagged rows, how far the farthest is off, as a share; 0 if there is none."""
    beyond: int
    """Of the unflagged rows, those off by more than MOVED."""
    beyond_apart: int
    """Of those, the ones whose interval does not meet the quiet one's either."""

    def lines(self) -> Iterator[str]:
        """Two sentences."""
        share = f"{100 * self.affected_flagged / self.affected:.0f} %" if self.affected else "none to flag"
        yield (
            f"medians that moved by more than {100 * MOVED:.0f} %: {self.affected}, of them flagged "
            f"{self.affected_flagged}: {share} (goal: at least {100 * FLAGGED:.0f} %)"
        )
        yield (
            f"rows without a flag: {self.unflagged}, the farthest off by {100 * self.largest:.1f} % "
            f"(goal: at most {100 * MOVED:.0f} %); {self.beyond} farther than that, {self.beyond_apart} of "
            "them with an interval apart from the quiet one's"
        )


def doubts(row: Measurement) -> tuple[str, ...]:
    """The flags of a row that cast doubt on its time."""
    return tuple(name for name in flags(row, None) if name in SUSPECT)


def baseline(*quiet: Iterable[Measurement]) -> dict[str, Measurement]:
    """Case -> its row in the first of the quiet runs that has a time for it without doubt."""
    found: dict[str, Measurement] = {}
    for run in quiet:
        for row in run:
            if row.status == "ok" and row.median_s and not doubts(row):
                found.setdefault(row.case, row)
    return found


def looks(base: Mapping[str, Measurement], run: Iterable[Measurement]) -> dict[str, Look]:
    """Case -> how it stands in this run; cases without a time, here or in the baseline, are left out."""
    found = {}
    for row in run:
        quiet = base.get(row.case)
        if quiet is None or quiet.median_s is None or row.status != "ok" or not row.median_s:
            continue
        found[row.case] = Look(row, row.median_s / quiet.median_s, doubts(row), _meet(row, quiet))
    return found


def _meet(one: Measurement, other: Measurement) -> bool:
    """Whether their intervals overlap; one whose ends are unknown meets every other."""
    ends = (one.low_s, one.high_s, other.low_s, other.high_s)
    if any(end is None for end in ends):
        return True
    low, high, other_low, other_high = (float(end or 0.0) for end in ends)
    return low <= other_high and other_low <= high


def figures(run: Iterable[Look]) -> Figures:
    """Count."""
    all_of_them = list(run)
    affected = [look for look in all_of_them if look.moved > MOVED]
    unflagged = [look for look in all_of_them if not look.doubts]
    beyond = [look for look in unflagged if look.moved > MOVED]
    return Figures(
        affected=len(affected),
        affected_flagged=sum(bool(look.doubts) for look in affected),
        unflagged=len(unflagged),
        largest=max((look.moved for look in unflagged), default=0.0),
        beyond=len(beyond),
        beyond_apart=sum(not look.meets for look in beyond),
    )


def table(base: Mapping[str, Measurement], runs: Mapping[str, Mapping[str, Look]]) -> Table:
    """A row a case: the quiet median, and of each run the median as a multiple of it, with the doubts."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("case", no_wrap=True)
    shown.add_column("quiet", justify="right", no_wrap=True)
    for name in runs:
        shown.add_column(name, justify="right", no_wrap=True)
        shown.add_column("flags")
    for case, quiet in base.items():
        cells = [_words(quiet), seconds_text(quiet.median_s or 0.0)]
        for run in runs.values():
            look = run.get(case)
            cells += ["no time", ""] if look is None else [f"x {look.ratio:.3f}", " ".join(look.doubts)]
        shown.add_row(*cells)
    return shown


def _words(row: Measurement) -> str:
    few = " one thread" if row.threads_asked == "one" else ""
    said = row.parameters.replace('"', "").strip("{}").replace(",", " ").replace(":", "=")
    return f"{row.operator}{few} {said}"


def main(
    seconds: Annotated[float, typer.Option(help="Budget of each of the four runs.")] = 60.0,
    sweep: Annotated[list[str] | None, typer.Option(help="Sweeps to run instead of 16 cases.")] = None,
) -> None:
    """Flags under contention: a quiet machine against busy ones. Nothing else may run meanwhile."""
    console = Console(width=WIDTH)
    manners: dict[str, AbstractContextManager[object]] = {
        "quiet": nullcontext(),
        "busy": burning(NEVER_RESTS),
        "now and then": burning(COMES_AND_GOES),
        "quiet again": nullcontext(),
    }
    runs: dict[str, list[Measurement]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        sweeps = sweep or list(_written(Path(temporary)))
        for name, manner in manners.items():
            console.print(f"{name}: about {seconds:.0f} s")
            with manner:
                runs[name] = measure(sweeps, Path(temporary) / name, seconds)
    base = baseline(runs["quiet"], runs["quiet again"])
    first = baseline(runs["quiet"])
    others = {
        "busy": looks(base, runs["busy"]),
        "now and then": looks(base, runs["now and then"]),
        "quiet again": looks(first, runs["quiet again"]),
    }
    console.print(table(base, others))
    timed = {row.case for run in runs.values() for row in run if row.status == "ok"}
    console.print(f"{len(base)} of {len(timed)} cases have a quiet time that no flag casts doubt on")
    for name, found in others.items():
        console.print(f"[bold]{name}[/bold], {len(found)} cases")
        for line in figures(found.values()).lines():
            console.print(f"  {line}", highlight=False)
    if not base:
        sys.exit("nothing can be said: this machine was not quiet to begin with")


def _written(folder: Path) -> Iterator[str]:
    for name, text in SWEEPS.items():
        path = folder / f"{name}.yaml"
        path.write_text(f"title: {name}\nsource: {{document: none, range: ours}}\n{text}")
        yield str(path)


if __name__ == "__main__":
    typer.run(main)
