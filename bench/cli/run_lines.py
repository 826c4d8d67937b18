"""The terminal output of a run before and during it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from bench.case_name import row_name
from bench.cli.result_tables import rate_text
from bench.device.detect import Device
from bench.device.health import PASSING, fitness
from bench.device.other_processes import OtherProcesses
from bench.errors import UserError
from bench.format import count_text, duration_text, half_text, seconds_text
from bench.judge.flags import measurable
from bench.runner.comparisons import CaseGroup
from bench.runner.run import Run
from bench.store.schema import Measurement
from bench.sweep.load import Case

WHILE_BUSY = "times come out longer, intervals wider, and rows flagged; measure when it is quiet"
"""What a busy device does to the numbers."""
WAIT = "ROOFBENCH_WAIT"
"""Environment variable with the seconds that a run waits at most for a busy machine; 0: it does not wait."""
WAIT_S, LOOK_S, OF_BUDGET = 60.0, 5.0, 1 / 3
"""Seconds that it waits otherwise, from one look to the next, and the share of its budget that it waits at
most."""
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


def wait_until_quiet(
    run: Run, say: Callable[[str], object], sleep: Callable[[float], object] = time.sleep
) -> None:
    """Wait while others use the device; the clock of the budget begins afterwards. UserError: a bad WAIT."""
    given = os.environ.get(WAIT, str(WAIT_S))
    if not given.replace(".", "", 1).isdecimal():
        raise UserError(f"{WAIT}={given}: give the seconds that a run waits at most for a busy machine")
    left_s = float(given) if run.budget_s is None else min(float(given), OF_BUDGET * run.budget_s)
    if not left_s or not (busy := busy_line(run, run.device)):
        return
    why = busy.removesuffix(f"; {WHILE_BUSY}")  # which the run says if it begins all the same
    say(f"{why}; waiting up to {duration_text(left_s)} for it to be quiet")
    while busy and left_s > 0:
        run.others = OtherProcesses()
        sleep(LOOK_S)
        left_s, busy = left_s - LOOK_S, busy_line(run, run.device)
    run.begin()


def progress_line(number: int, total: int, row: Measurement, left_s: float | None) -> str:
    """One visit, done: `[ 12/210]   4.2 us   ±0.4 %   46 GB/s   1 min 05 s left   gemm/square-onednn-...`."""
    row = measurable(row)
    told, why = row.status, f": {row.reason}"
    if row.status == "ok" and row.median_s is not None:
        interval = half_text(row.median_s, row.low_s, row.high_s)
        told, why = f"{seconds_text(row.median_s):>8} {interval:>8} {rate_text(row):>14}", ""
    left = f"{duration_text(left_s):>12} left" if left_s else ""
    visit = f" visit {row.visit + 1}" if row.visit else ""
    return f"[{number:{len(str(total))}}/{total}] {told:<32} {left:>17}   {row_name(row)}{visit}{why}"


def asked_text(cases: Sequence[Case]) -> str:
    """`89 cases of 12 sweeps, and 14 ceilings`."""
    others = [case for case in cases if case.role == "measurement"]
    sweeps, ceilings = len({case.sweep for case in others}), len(cases) - len(others)
    roofs = count_text(ceilings, "ceiling") if ceilings else "no ceilings"
    return f"{count_text(len(others), 'case')} of {count_text(sweeps, 'sweep')}, and {roofs}"


def left_out_line(comparisons: Sequence[CaseGroup]) -> Iterator[str]:
    """What there is no time for: `no time for all cases of gemm/square: give --bench-budget more`."""
    sweeps = [name for name, _ in Counter(each.sweep for each in comparisons).most_common()]
    if sweeps:
        more = f" and {count_text(len(sweeps) - SHOWN, 'more sweep')}" if len(sweeps) > SHOWN else ""
        yield f"no time for all cases of {', '.join(sweeps[:SHOWN])}{more}: give --bench-budget more"
