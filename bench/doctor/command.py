"""`python -m bench doctor`: what works on this machine, and is it steady?"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.application import DeviceOption, remark, show
from bench.device.detect import detect, unusable_gpu
from bench.device.lock import device_lock
from bench.errors import write_text


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
    from bench.doctor.finding import exit_code
    from bench.doctor.report import FULL, QUICK, findings, lines, report, verdict

    begin = time.perf_counter()
    if json_file is not None:
        write_text(json_file, "")  # an unwritable path shows now, not after a minute
    device = detect(bench_device)
    why = unusable_gpu() if device.kind == "cpu" and bench_device == "auto" else ""
    show([f"roofbench doctor: {device.name}"])
    found = []
    with device_lock(device.uuid, str(device), "the doctor") as unlocked:
        if unlocked:
            remark(unlocked)
        for finding in findings(device, why, QUICK if quick else FULL):
            found.append(finding)
            show(lines(finding))
    seconds = time.perf_counter() - begin
    if json_file is not None:
        write_text(json_file, json.dumps(report(device, found, seconds), indent=1) + "\n")
    show([f"{verdict(found)}, {seconds:.0f} s"])
    raise typer.Exit(exit_code(found))
