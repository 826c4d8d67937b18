"""Telemetry of a CPU while a case is timed: counters of the kernel, read before and after.

Every column is a difference of running counters over the window. Columns that the kernel does not know are
null; outside of Linux these are most.

Three counters show who else computes. Pressure says that a task waited for a processor, among those that the
kernel lets us see. The timing thread's own processor time says whether this thread waited, whoever took the
processor. Steal says what a hypervisor took. None of them shows heat and frequency, which in a virtual
machine no counter shows: the sentinel does, a fixed piece of work that is timed at both ends.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.device.control_groups import control_groups, text_of

Counters = dict[str, float]
"""Running counters by name, without those that the kernel lacks."""


class CpuTelemetry:
    """State of the processors over a window. Called by the thread that times, between timings."""

    launches = 20
    """Launches of the sentinel at each end."""

    def __init__(self, sentinel: Callable[[], object], root: Path = Path("/"), clock: Any = time) -> None:
        """`sentinel` is a launch of about 0.1 ms on the units that cases use, from a warm cache.

        `root` is where proc and sys are; `clock` has perf_counter and thread_time as `time` has them.
        """
        self._sentinel, self._root, self._clock = sentinel, root, clock
        self._groups = list(control_groups("cpu", root))
        self._governor = governor(root)
        self._before_s = 0.0
        self._began: Counters = {}

    def start(self) -> None:
        """Begin a window."""
        self._before_s = self._sentinel_s()
        self._began = self._read()

    def stop(self) -> dict[str, Any]:
        """Columns of the row for the window since `start`."""
        now = self._read()
        # Counters that are missing or stepped back are dropped.
        spent = {name: now[name] - at for name, at in self._began.items() if name in now and now[name] >= at}
        wall_s = max(spent.get("wall", 0.0), 1e-9)
        shares = {
            # The machine's pressure does not show a container's quota, and may be hidden from a container.
            "pressure": _largest(spent, "pressure"),
            # Each throttled processor adds its time, so the sum may exceed the wall time.
            "throttled": _largest(spent, "throttled"),
            "steal": spent.get("steal"),
            "on_processor": spent.get("thread"),
        }
        facts: dict[str, Any] = {k: s / wall_s for k, s in shares.items() if s is not None}
        facts |= {k: min(1.0, facts[k]) for k in ("pressure", "throttled") if k in facts}
        if "switches" in spent:
            facts["involuntary_switches"] = round(spent["switches"])
        before_s, after_s = self._before_s, self._sentinel_s()
        facts |= {"governor": self._governor, "sentinel_before_s": before_s, "sentinel_after_s": after_s}
        if min(before_s, after_s) > 0:
            facts["sentinel_moved"] = abs(after_s - before_s) / min(before_s, after_s)
        return facts

    def light(self) -> bool:
        """True: a CPU settles quickly, whatever its load."""
        return True

    def clock_hz(self) -> float | None:
        """None: the kernel reports only the frequency that it asked for."""
        return None

    def _sentinel_s(self) -> float:
        """Median seconds of the sentinel."""
        times: list[float] = []
        for _ in range(self.launches):
            begin = self._clock.perf_counter()
            self._sentinel()
            times.append(self._clock.perf_counter() - begin)
        return statistics.median(times)

    def _read(self) -> Counters:
        """All counters: seconds, and a number of switches."""
        counters: dict[str, float | None] = {
            "wall": self._clock.perf_counter(),
            "thread": self._clock.thread_time(),
            "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            "steal": steal_s(self._root),
            "pressure": pressure_s(self._root / "proc/pressure/cpu"),
        }
        if self._groups:  # the first is this process's own; those above it hold others' tasks too
            counters["pressure group"] = pressure_s(self._groups[0] / "cpu.pressure")
        counters |= {f"throttled {group}": throttled_s(group) for group in self._groups}
        return {name: value for name, value in counters.items() if value is not None}


def _largest(counters: Counters, kind: str) -> float | None:
    return max((s for name, s in counters.items() if name.split(" ", 1)[0] == kind), default=None)


def pressure_s(path: Path) -> float | None:
    """Seconds in which a task waited for a processor, from a `cpu.pressure` file; None without one."""
    try:
        line = path.read_text().splitlines()[0]
        return int(line.rsplit("total=", 1)[1]) * 1e-6
    except (OSError, IndexError, ValueError):
        return None


def steal_s(root: Path) -> float | None:
    """Seconds since boot that the hypervisor took, as the mean over the processors we may use; or None."""
    try:
        rows = [line.split() for line in (root / "proc/stat").read_text().splitlines()]
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        ticks = [int(row[8]) for row in rows if row and row[0] in ours]
        return statistics.fmean(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError, AttributeError):  # no sched_getaffinity outside of Linux
        return None


def throttled_s(group: Path) -> float | None:
    """Seconds for which a control group's quota held its tasks back, summed over processors; None if unknown.

    `throttled_usec` is microseconds (cgroup v2), `throttled_time` nanoseconds (v1).
    """
    units = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    try:
        for line in (group / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in units:
                return int(value) * units[name]
    except (OSError, ValueError):
        pass
    return None


def governor(root: Path) -> str:
    """The frequency governor of all processors; `mixed: ...` if they differ, empty if unknown."""
    paths = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    names = sorted({text_of(path) for path in paths} - {""})  # empty of a processor that was taken offline
    return f"mixed: {', '.join(names)}" if len(names) > 1 else "".join(names)
