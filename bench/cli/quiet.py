"""A run on a busy machine asks, or waits a minute for it to be quiet, before it spends three."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import typer

from bench.cli.run_lines import WHILE_BUSY, busy_line
from bench.device.other_processes import OtherProcesses
from bench.errors import UserError
from bench.format import duration_text
from bench.runner.run import Run

WAIT = "ROOFBENCH_WAIT"
"""Environment variable with the seconds that a run waits at most; 0: it neither waits nor asks."""
WAIT_S, LOOK_S, OF_BUDGET = 60.0, 5.0, 1 / 3
"""Seconds that it waits otherwise, from one look to the next, and the share of its budget that it waits at
most."""


def wait_until_quiet(
    run: Run, say: Callable[[str], object], sleep: Callable[[float], object] = time.sleep
) -> None:
    """Ask on a terminal whether to measure while others use the device; elsewhere wait until they do not.

    The clock of the budget begins afterwards. UserError if the answer is no, or WAIT is no number.
    """
    given = os.environ.get(WAIT, str(WAIT_S))
    if not given.replace(".", "", 1).isdecimal():
        raise UserError(f"{WAIT}={given}: give the seconds that a run waits at most for a busy machine")
    left_s = float(given) if run.budget_s is None else min(float(given), OF_BUDGET * run.budget_s)
    if not left_s or not (busy := busy_line(run, run.device)):
        return
    if sys.stdin.isatty():
        if not typer.confirm(f"{busy}. Measure all the same?"):
            raise UserError(f"not measured: {run.device} is busy")
    else:
        why = busy.removesuffix(f"; {WHILE_BUSY}")  # which the run says if it begins all the same
        say(f"{why}; waiting up to {duration_text(left_s)} for it to be quiet")
    while busy and left_s > 0 and not sys.stdin.isatty():
        run.others = OtherProcesses()
        sleep(LOOK_S)
        left_s, busy = left_s - LOOK_S, busy_line(run, run.device)
    run.begin()
