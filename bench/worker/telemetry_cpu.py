"""Telemetry of a CPU while a case is timed: counters of the kernel, read before and after.

Every column is a difference of running counters over the window. Columns that the kernel does not know are
null; outside of Linux these are most.

Three counters show who else computes. Pressure says that a task waited for a processor, among those that the
kernel lets us see. The timing thread's own processor time says whether this thread waited, whoever took the
processor. Steal says what a hypervisor took. None of them shows heat and frequency, which in a virtual
machine no counter shows.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

from bench.device.control_groups import control_groups, text_of

Counters = dict[str, float]
"""Running counters by name, without those that the kernel lacks."""


class CpuTelemetry:
    """State of the processors over a window. Called by the thread that times, between timings."""

    def __init__(self, root: Path = Path("/"), clock: Any = time) -> None:
        """`root` is where proc and sys are; `clock` has perf_counter and thread_time as `time` has them."""
        self._root, self._clock = root, clock
        self._groups = list(control_groups("cpu", root))
        self._governor = governor(root)
        self._began: Counters = {}

    def start(self) -> None:
        """Begin a window."""
        self._began = self._read()

    def stop(self) -> dict[str, Any]:
        """Columns of the row for the window since `start`."""
        now = self._read()
        # Counters that are missing or stepped back are dropped.
        spent = {name: now[name] - at for name, at in self._began.items() if name in now and now[name] >= at}
        wall_s = max(spent.pop("wall", 0.0), 1e-9)
        facts: dict[str, Any] = {"governor": self._governor}
        for name, seconds in spent.items():
            column = name.partition(" ")[0]
            # The machine's pressure does not show a container's quota, and may be hidden from a container.
            # Each throttled processor adds its time, so the sum may exceed the wall time.
            facts[column] = max(facts.get(column, 0.0), min(1.0, seconds / wall_s))
        return facts

    def light(self) -> bool:
        """True: a CPU settles quickly, whatever its load."""
        return True

    def clock_hz(self) -> float | None:
        """None: the kernel reports only the frequency that it asked for."""
        return None

    def _read(self) -> Counters:
        """Seconds of all counters: a column's name, and behind a space which of several it is."""
        counters: dict[str, float | None] = {
            "wall": self._clock.perf_counter(),
            "on_processor": self._clock.thread_time(),
            "steal": steal_s(self._root),
            "pressure": pressure_s(self._root / "proc/pressure/cpu"),
        }
        if self._groups:  # the first is this process's own; those above it hold others' tasks too
            counters["pressure group"] = pressure_s(self._groups[0] / "cpu.pressure")
        counters |= {f"throttled {group}": throttled_s(group) for group in self._groups}
        return {name: value for name, value in counters.items() if value is not None}


def pressure_s(path: Path) -> float | None:
    """Seconds in which a task waited for a processor, from a `cpu.pressure` file; None without one."""
    total = re.match(r"some .* total=(\d+)", text_of(path))
    return int(total[1]) * 1e-6 if total else None


def steal_s(root: Path) -> float | None:
    """Seconds since boot that the hypervisor took, as the mean over the processors we may use; or None."""
    rows = [line.split() for line in text_of(root / "proc/stat").splitlines()]
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)} if rows else {}
    ticks = [int(row[8]) for row in rows if row[0] in ours]
    return statistics.fmean(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def throttled_s(group: Path) -> float | None:
    """Seconds for which a control group's quota held its tasks back, summed over processors; None if unknown.

    `throttled_usec` is microseconds (cgroup v2), `throttled_time` nanoseconds (v1).
    """
    found = re.search(r"^throttled_(usec|time) (\d+)$", text_of(group / "cpu.stat"), re.MULTILINE)
    return int(found[2]) * {"usec": 1e-6, "time": 1e-9}[found[1]] if found else None


def governor(root: Path) -> str:
    """The frequency governor of all processors; all that there are if they differ, empty if unknown."""
    paths = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({text_of(path) for path in paths} - {""}))  # empty of a processor taken offline
