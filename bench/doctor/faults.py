"""Faults: an illegal address, a hang and a kill each give a row, and the row after it is good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from bench.device.detect import Device
from bench.doctor.finding import Finding, failed, outcome, passed
from bench.runner.supervisor import WorkerSupervisor
from bench.worker.fault import Fault

FAULTS = {"illegal": ("error", "crashed"), "hang": ("timeout",), "kill": ("crashed",)}
"""Fault -> the statuses that its row may have: an illegal address is an error on a GPU, a crash on a CPU."""
GRACE_S = 60.0
HANG_S = 2.0
"""Seconds after which a launch counts as hung: a sound one takes microseconds."""
REMEDY = "Do not run unattended, since a bad kernel would spoil the rows after it; report this line."


def faults(device: Device) -> Iterator[Finding]:
    """One finding for all faults, which a real worker suffers one after the other."""
    with closing(WorkerSupervisor(device, grace_s=GRACE_S)) as supervisor:
        yield survived(supervisor)


def survived(supervisor: WorkerSupervisor) -> Finding:
    """Provoke each fault, and ask for a good result before the first and after each."""
    problem = Fault(dtype="float32", length=1024)
    rows = {"first": supervisor.check("good", problem, quick=True).columns()}
    if rows["first"]["status"] != "ok":
        return failed("faults", f"A sound kernel's row is {outcome(rows['first'])}.", REMEDY)
    for fault, allowed in FAULTS.items():
        supervisor.grace_s = HANG_S if fault == "hang" else GRACE_S
        row = rows[fault] = supervisor.check(fault, problem, quick=True).columns()
        supervisor.grace_s = GRACE_S
        after = rows[f"after {fault}"] = supervisor.check("good", problem, quick=True).columns()
        # An error has to name the fault: a kernel that did not compile would prove nothing.
        another = row["status"] == "error" and fault not in str(row.get("reason", ""))
        if row["status"] not in allowed or another:
            sentence = (
                f"The row of a fault ({fault}) should be {' or '.join(allowed)}, and is {outcome(row)}."
            )
        elif after["status"] != "ok":
            sentence = f"The row of a sound kernel after a fault ({fault}) is {outcome(after)}."
        else:
            continue
        return failed("faults", sentence, REMEDY)
    shown = ", ".join(f"{fault}: {rows[fault]['status']}" for fault in FAULTS)
    return passed("faults", f"Each is one row ({shown}), and the next row is right.")
