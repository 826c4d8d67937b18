"""A whole run that prints what happens, for commands that are not pytest."""

from __future__ import annotations

import sys
from functools import partial

import typer

import kernels
from bench.cli.closing import closing_lines
from bench.cli.run_lines import opening_lines, show
from bench.cli.terminal import Live
from bench.errors import UserError
from bench.runner.custom_kernel import checked_kernels
from bench.runner.run import Options, Run, RunResult
from bench.sweep.load import Find


def measure(options: Options, find: Find = kernels.problem) -> list[RunResult]:
    """Measure every requested case, report progress on standard output, and return the outcome by device.

    UserError if it cannot begin. After Ctrl-C, or if results can no longer be written, the results say so and
    where the rows are; a mistake of ours is raised when the rows are safe.
    """
    terminal = Live(partial(typer.echo, nl=False), sys.stdout.isatty())
    run = Run(options, find)
    try:
        for session in run.sessions:
            cases = [each.case for each in run.cases.values() if each.session is session]
            for line in checked_kernels(cases, session.worker, session.device):
                terminal.line(line)
        names = list(run.cases)
        run.plan(names[index] for index in run.order(names))
    except BaseException:
        run.release()
        raise
    try:
        for line in opening_lines(run):
            terminal.line(line)
        show(run, terminal.line, progress=terminal.progress)
        terminal.end()
        results = run.finish()
    except KeyboardInterrupt:
        results = run.finish(interrupted=True, reason="the measuring was interrupted")
    except UserError as error:
        results = run.finish(interrupted=True, reason=str(error))
    except BaseException:
        run.finish(interrupted=True)
        raise
    for line in closing_lines(run):
        terminal.line(line)
    return results
