"""What the doctor says: its checks, one after the other, and their findings as lines."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

from bench.causes import cause
from bench.device.detect import Device
from bench.doctor.clocks import clocks
from bench.doctor.faults import faults
from bench.doctor.finding import Finding, exit_code, failed
from bench.doctor.installation import driver, packages
from bench.doctor.operators import operators
from bench.doctor.steadiness import steadiness

# The driver first: it looks for neighbours, and every process that is started afterwards is one more.
QUICK = (driver, packages)
FULL = (*QUICK, operators, faults, clocks, steadiness)
VERDICTS = ("healthy", "degraded", "unusable")
"""The verdict for each exit code."""
GPU_REMEDY = "Repair the driver (nvidia-smi must list the GPU), or ask for the CPU: --bench-device cpu."
BUG_REMEDY = "Read the traceback; if it blames no package, it is our bug."


def findings(
    device: Device, unusable: str, checks: tuple[Callable[[Device], Iterator[Finding]], ...]
) -> Iterator[Finding]:
    """The findings of these checks, in order, as they come.

    An exception of a check is its failure alone. If no worker starts, every later check would fail for the
    same reason and is left out. `unusable`: why a driver offers no GPU, although it is there.
    """
    if unusable:
        yield failed("GPU", f"A CUDA driver is installed and gives no GPU: {unusable}.", GPU_REMEDY)
    for check in checks:
        try:
            for finding in check(device):
                yield finding
                if finding.name == "worker" and finding.level == "FAIL":
                    return
        except Exception as error:
            traceback.print_exc()
            yield failed("broken check", f"The check {check.__name__}: {cause(error)}.", BUG_REMEDY)


def lines(finding: Finding) -> Iterator[str]:
    """`PASS name: sentence`, and below it the remedy, if there is one."""
    yield f"{finding.level} {finding.name}: {finding.sentence}"
    if finding.remedy:
        yield f"     {finding.remedy}"


def verdict(found: list[Finding]) -> str:
    """The last line: `healthy (exit code 0): 12 PASS, 0 WARN, 0 FAIL`."""
    levels = [finding.level for finding in found]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in ("PASS", "WARN", "FAIL"))
    return f"{VERDICTS[exit_code(found)]} (exit code {exit_code(found)}): {counts}"
