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
    """Provoke each fault, and ask for a good result after each."""
    problem, statuses = Fault(dtype="float32", length=1024), []
    for fault, allowed in FAULTS.items():
        supervisor.grace_s = HANG_S if fault == "hang" else GRACE_S
        row = supervisor.check(fault, problem, quick=True).columns()
        supervisor.grace_s = GRACE_S
        after = supervisor.check("good", problem, quick=True).columns()
        # An error has to name the fault: a kernel that did not compile would prove nothing.
        another = row["status"] == "error" and fault not in str(row.get("reason", ""))
        if row["status"] not in allowed or another or after["status"] != "ok":
            told = f"a fault ({fault}) is {outcome(row)}; of a sound kernel after it, {outcome(after)}"
            return failed("faults", f"The row of {told}.", REMEDY)
        statuses.append(f"{fault}: {row['status']}")
    return passed("faults", f"Each is one row ({', '.join(statuses)}), and the next row is right.")
