"""What other processes take of the processors between two moments, from counters of the kernel.

A load average would count a run's own processes, and those that ended a minute ago.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.device.control_groups import text_of
from bench.device.detect import usable_processors

TAKEN = 0.5
"""Processors' worth of time from which others are reported. It is no share of all processors: work that is
spread over all of them waits for the slowest."""
LEAST_S = 0.5
"""Counters advance in steps of 10 ms: of a shorter time nothing is said."""
MOST_OF_IT = 0.5
"""Share of what others take from which one process is named."""
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""Columns of a processor in /proc/stat in which it is in use: user, nice, system, irq, softirq, steal."""


class Process(NamedTuple):
    """A process in /proc/PID/stat; times in seconds of processor time."""

    name: str
    parent: int
    own_s: float
    ended_children_s: float


class Reading(NamedTuple):
    """The counters at one moment."""

    at_s: float
    busy_s: float
    """Seconds since boot in which the processors that we may use were in use, by whomever."""
    processes: dict[int, Process]


class OtherProcesses:
    """What processes other than this one and its children take of the processors, from when this is made."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.perf_counter) -> None:
        """`root` is where proc is, `clock` gives seconds."""
        self._root, self._clock = root, clock
        self._began = self._read()

    def busy(self) -> str:
        """What they take, as a clause; empty if it is less than TAKEN, or not known."""
        began, now = self._began, self._read()
        wall_s = now.at_s - began.at_s
        if wall_s < LEAST_S:
            return ""
        ours = _family(now.processes, os.getpid())
        ours_s = _spent_s(now, ours) - _spent_s(began, _family(began.processes, os.getpid()))
        others_s = now.busy_s - began.busy_s - ours_s
        if others_s < TAKEN * wall_s:
            return ""
        processors = len(usable_processors())
        share = min(others_s / wall_s, processors)
        taken = f"other processes take {share:.1f} of {processors} processors"
        seconds = {
            pid: process.own_s - before.own_s
            for pid, process in now.processes.items()
            if pid not in ours and (before := began.processes.get(pid)) is not None
        }
        largest = max(seconds, key=lambda pid: seconds[pid], default=None)
        if largest is None or seconds[largest] < MOST_OF_IT * others_s:
            return taken
        return f"{taken}, most of it {now.processes[largest].name}, process {largest}"

    def _read(self) -> Reading:
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        usable = {f"cpu{number}" for number in usable_processors()}
        rows = [line.split() for line in text_of(self._root / "proc/stat").splitlines()]
        rows = [row for row in rows if len(row) > max(BUSY_FIELDS) and row[0] in usable]
        ticks = [int(row[field]) for row in rows for field in BUSY_FIELDS]
        processes = {}
        for path in self._root.glob("proc/[0-9]*/stat"):
            # The name stands in brackets, and may hold some.
            name, bracket, rest = text_of(path).partition("(")[2].rpartition(") ")
            if bracket:  # else it has ended meanwhile
                fields = rest.split()
                own, children = (tick_s * (int(fields[at]) + int(fields[at + 1])) for at in (11, 13))
                processes[int(path.parent.name)] = Process(name, int(fields[1]), own, children)
        return Reading(self._clock(), tick_s * sum(ticks), processes)


def _family(processes: dict[int, Process], pid: int) -> set[int]:
    """A process and all that it started, directly or indirectly."""
    family, added = {pid}, {pid}
    while added:
        added = {each for each, process in processes.items() if process.parent in added} - family
        family |= added
    return family


def _spent_s(reading: Reading, family: set[int]) -> float:
    there = (process for pid, process in reading.processes.items() if pid in family)
    return sum(process.own_s + process.ended_children_s for process in there)
