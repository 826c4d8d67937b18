"""`python -m bench doctor`: does this machine measure rightly?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import DeviceOption, remark
from bench.device.detect import detect, unusable_gpu
from bench.errors import write_text

if TYPE_CHECKING:
    from bench.selfcheck.groups import GroupOutcome


def doctor(
    bench_device: DeviceOption = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Only the part that takes three seconds.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Versions, every number, whole tracebacks.")
    ] = None,
) -> None:
    """Check within a minute which parts of a run work here: lines of PASS, WARN or FAIL, with a remedy.

    Exit code 0: healthy. 1: degraded, some line is WARN. 2: unusable, some line is FAIL; or the command was
    misspelt or the device is in use, which is then said in a line that begins with `error:`.
    """
    from rich.console import Console

    from bench.device.lock import device_lock
    from bench.selfcheck.report import report, run

    begin = time.perf_counter()
    if json_file is not None:
        write_text(json_file, "")  # an unwritable path shows now, not after a minute
    device = detect(bench_device)
    unusable = unusable_gpu() if device.kind == "cpu" and bench_device == "auto" else ""
    with device_lock(device.uuid, str(device), "the doctor") as unlocked:
        if unlocked:
            remark(unlocked)

        def keep(outcomes: list[GroupOutcome]) -> None:
            if json_file is not None:
                write_text(json_file, report(device, quick, outcomes, time.perf_counter() - begin))

        code = run(device, unusable, quick, Console(), keep)
    typer.echo(f"{time.perf_counter() - begin:.0f} s")
    raise typer.Exit(code)
