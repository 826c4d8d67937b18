"""The terminal output of a run before and during it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from bench.case_name import row_name
from bench.cli.result_tables import rate_text
from bench.cli.terminal import columns
from bench.device.detect import Device
from bench.device.health import PASSING, fitness
from bench.format import count_text, duration_text, half_text, seconds_text, shortened
from bench.judge.flags import measurable
from bench.runner.comparisons import CaseGroup
from bench.runner.run import Run
from bench.store.schema import Measurement
from bench.sweep.load import Case

WHILE_BUSY = "times come out longer, intervals wider, and rows flagged; measure when it is quiet"
"""What a busy device does to the numbers."""
SHOWN = 5
"""Most sweeps that are named in a sentence."""


def opening_lines(run: Run) -> list[str]:
    """The lines printed before the first case. UserError if the worker does not start."""
    device = run.device
    busy = busy_line(run, device) if device.kind == "cuda" else ""  # before our worker is on it
    libraries = run.libraries()
    units = f"{device.sm_count} {'SMs' if device.kind == 'cuda' else 'cores'}"
    lines = [f"roofbench: {device.name}, {units}; {libraries}"]
    if busy := busy or (busy_line(run, device) if device.kind == "cpu" else ""):
        lines.append(busy)
    limit = "no limit" if run.budget_s is None else duration_text(run.budget_s)
    if run.suite:
        lines.append(f"suite {run.suite}")
    rounds = f"{run.protocol.visits} rounds, then more until intervals are ±{100 * run.precision:g} %"
    lines.append(f"budget: {limit}; {rounds}; results: {run.folder}")
    lines.append(f"asked for: {asked_text(run.requested)}")
    if run.data != "uniform":
        lines.append(f"inputs are {run.data}: such rows are compared with none whose inputs are others")
    lines += filter(None, [run.unlocked])
    if run.resume and not any(left.resumed for left in run.left):
        lines.append(f"nothing to resume: no unfinished run in {run.folder}; a new one begins")
    for left in run.left:
        done = "going on with" if left.resumed else "recovered"
        lines.append(f"{done} an unfinished run: {left.rows} rows, {left.path}")
        lines += left.damage
    if run.concurrent_gpus > 1:
        lines.append(
            f"timed at the same time as other GPUs, {run.concurrent_gpus} in all: how they do under each "
            "other's load; such rows are never compared with those of runs made alone"
        )
    if run.no_commit:
        lines.append(f"the commit of these rows is unknown: {run.no_commit}")
    if run.unusable:
        lines.append(f"no GPU is measured: {run.unusable}")
    return lines


def busy_line(run: Run, device: Device) -> str:
    """A warning if something else uses or slows the device; empty otherwise."""
    against = [str(unfit) for unfit in fitness(device, others=run.others) if unfit.kind in PASSING]
    return f"warning: {device} is {', and '.join(against)}; {WHILE_BUSY}" if against else ""


class Progress:
    """Shows what each visit of a run brought."""

    def __init__(self, run: Run, say: Callable[[str], None], progress: Callable[[str], None] | None) -> None:
        """`progress` gets the lines of visits, of which the last is worth showing; without it `say` does."""
        self._run, self._say, self._progress = run, say, progress or say
        self._number = self._notes = 0

    def show(self, row: Measurement) -> None:
        """Say what the visit of this row brought, and what follows from it."""
        rounds = self._run.rounds
        if row.status not in ("unsupported", "skipped"):
            self._number += 1
            left, left_s = rounds.left(self._run.elapsed_s)
            total = self._number + left
            edge = columns()
            self._progress(progress_line(self._number, total, row, left_s, edge and edge - 1))
        notes, self._notes = rounds.failure_limit.lines[self._notes :], len(rounds.failure_limit.lines)
        for sentence in notes:
            self._say(sentence)


def progress_line(number: int, total: int, row: Measurement, left_s: float | None, most: int | None) -> str:
    """One visit, done: `[ 12/210] gemm/square-onednn-float32-...   4.2 us ±0.4 %   1 min 05 s left`.

    Where the line would have more than `most` columns, the reason for no time is cut, and the middle of a
    long name is left out. None: a log has all of it.
    """
    row = measurable(row)
    head = f"[{number:{len(str(total))}}/{total}] "
    name = row_name(row) + (f" visit {row.visit + 1}" if row.visit else "")
    if row.status == "ok" and row.median_s is not None:
        interval = half_text(row.median_s, row.low_s, row.high_s)
        tail = f" {seconds_text(row.median_s):>8} {interval:>8} {rate_text(row):>14}"
    else:
        tail = f" {row.status}: {row.reason}"
    left = f"   {duration_text(left_s):>12} left" if left_s else " " * 20
    if most is None:
        return f"{head}{name}{tail}{left}".rstrip()
    room = most - len(head) - len(left)
    if row.status != "ok":
        tail = tail[: max(room - len(name), len(f" {row.status}"))]
    room = max(12, room - len(tail))
    return f"{head}{shortened(name, room):<{room}}{tail}{left}".rstrip()


def asked_text(cases: Sequence[Case]) -> str:
    """`89 cases of 12 sweeps, and 14 ceilings`."""
    others = [case for case in cases if case.role == "measurement"]
    sweeps, ceilings = len({case.sweep for case in others}), len(cases) - len(others)
    roofs = count_text(ceilings, "ceiling") if ceilings else "no ceilings"
    return f"{count_text(len(others), 'case')} of {count_text(sweeps, 'sweep')}, and {roofs}"


def claims_line(compared: Sequence[CaseGroup]) -> str:
    """On how many claims, and on which rules, these cases can decide; empty if on none."""
    count = sum(each.claim is not None for each in compared)
    rules = f", on rules {text}" if (text := _rules(compared)) else ""
    return f"these cases are enough for verdicts on {count_text(count, 'claim')}{rules}" if count else ""


def left_out_line(comparisons: Sequence[CaseGroup]) -> Iterator[str]:
    """What there is no time for: `no time for all cases of gemm/square, which rules 3, 7 need`."""
    sweeps = [name for name, _ in Counter(each.sweep for each in comparisons).most_common()]
    if sweeps:
        more = f" and {count_text(len(sweeps) - SHOWN, 'more sweep')}" if len(sweeps) > SHOWN else ""
        needed = f", which rules {text} need" if (text := _rules(comparisons)) else ""
        yield f"no time for all cases of {', '.join(sweeps[:SHOWN])}{more}{needed}: give --bench-budget more"


def _rules(comparisons: Sequence[CaseGroup]) -> str:
    return ", ".join(map(str, sorted({r for each in comparisons if each.claim for r in each.claim.rules})))
