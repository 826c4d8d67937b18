"""A whole run that prints what happens, for commands that are not pytest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import typer

import kernels
from bench.cli.application import show
from bench.cli.closing import closing_lines
from bench.cli.run_lines import opening_lines, progress_line, wait_until_quiet
from bench.cli.terminal import Live
from bench.errors import UserError
from bench.runner.custom_kernel import checked_kernels
from bench.runner.options import Options, run_for
from bench.runner.run import Run, RunResult
from bench.sweep.load import Find


def measure(options: Options, find: Find = kernels.problem) -> RunResult:
    """Measure every requested case, report progress on standard output, and return the outcome.

    UserError if it cannot begin. After Ctrl-C, or if results can no longer be written, the result says so and
    where the rows are; a mistake of ours is raised when the rows are safe.
    """
    run = run_for(options, find)
    terminal = Live(partial(typer.echo, nl=False), sys.stdout.isatty())
    try:
        for line in checked_kernels(list(run.cases.values()), run.worker, run.device, run.refuse_if_over):
            show([line])
        run.plan(run.order(run.cases))
        try:
            show_run(run, terminal)
            result = run.finish()
        except KeyboardInterrupt:
            result = run.finish(interrupted=True, reason="the measuring was interrupted")
        except UserError as error:
            result = run.finish(interrupted=True, reason=str(error))
    finally:
        run.interrupted()  # which changes nothing of a run that has been finished
    for line in closing_lines(run):
        terminal.line(line)
    return result


def show_run(run: Run, terminal: Live, most_failures: int | None = None) -> None:
    """Visit the planned cases, and show what a run shows before and while it does. UserError."""
    wait_until_quiet(run, terminal.line)
    for line in opening_lines(run):
        terminal.line(line)
    show_visits(run, terminal.line, terminal.progress, most_failures)
    terminal.line("")


def show_visits(
    run: Run,
    say: Callable[[str], object],
    progress: Callable[[str], object],
    most_failures: int | None = None,
) -> None:
    """Visit the planned cases: `progress` gets a line for each visit, `say` what follows. UserError."""
    number = told = 0
    for row in run.walk(most_failures):
        if row.status not in ("unsupported", "skipped"):
            number += 1
            left, left_s = run.rounds.left(run.elapsed_s)
            progress(progress_line(number, number + left, row, left_s))
        notes = run.rounds.failure_limit.lines
        for sentence in notes[told:]:
            say(sentence)
        told = len(notes)
