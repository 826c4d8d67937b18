"""`python -m bench doctor`: what works on this machine, and is it steady?"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from bench.cli.application import DeviceOption, remark, show
from bench.device.detect import detect, unusable_gpu
from bench.device.lock import device_lock


def doctor(
    bench_device: DeviceOption = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Only the part that takes three seconds.")] = False,
) -> None:
    """Check within a minute which parts of a run work here: lines of PASS, WARN or FAIL, with a remedy.

    Exit code 0: healthy. 1: degraded, some line is WARN. 2: unusable, some line is FAIL; or, with a line that
    begins with `error:`, the command was misspelt or the device is in use.
    """
    from bench.doctor.finding import exit_code
    from bench.doctor.report import FULL, QUICK, findings, lines, verdict

    begin = time.perf_counter()
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
    show([f"{verdict(found)}, {time.perf_counter() - begin:.0f} s"])
    raise typer.Exit(exit_code(found))
