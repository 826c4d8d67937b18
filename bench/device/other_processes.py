"""What other processes take of the processors between two moments, from counters of the kernel.

A load average would count a run's own processes, and those that ended a minute ago.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.device.control_groups import text_of
from bench.device.detect import usable_processors

TAKEN = 0.5
"""Processors' worth of time from which others are reported. It is no share of all processors: work that is
spread over all of them waits for the slowest."""
LEAST_S = 0.5
"""Counters advance in steps of 10 ms: of a shorter time nothing is said."""
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""Columns of a processor in /proc/stat in which it is in use: user, nice, system, irq, softirq, steal."""


class OtherProcesses:
    """What processes other than this one and its children take of the processors, from when this is made."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.perf_counter) -> None:
        """`root` is where proc is, `clock` gives seconds."""
        self._root, self._clock = root, clock
        self._began = self._read()

    def busy(self) -> str:
        """What they take, as a clause; empty if it is less than TAKEN, or not known."""
        (began_s, before_s), (now_s, after_s) = self._began, self._read()
        wall_s, others_s = now_s - began_s, after_s - before_s
        if wall_s < LEAST_S or others_s < TAKEN * wall_s:
            return ""
        processors = len(usable_processors())
        share = min(others_s / wall_s, processors)
        return f"other processes take {share:.1f} of {processors} processors"

    def _read(self) -> tuple[float, float]:
        """(now, seconds that our processors have served others, counted from whenever)."""
        usable = {f"cpu{number}" for number in usable_processors()}
        rows = [line.split() for line in text_of(self._root / "proc/stat").splitlines()]
        rows = [row for row in rows if len(row) > max(BUSY_FIELDS) and row[0] in usable]
        ticks = sum(int(row[field]) for row in rows for field in BUSY_FIELDS)
        parents, spent = dict[int, int](), dict[int, int]()
        for path in self._root.glob("proc/[0-9]*/stat"):
            # The name before stands in brackets, and may hold some.
            if fields := text_of(path).rpartition(") ")[2].split():  # else it has ended meanwhile
                pid = int(path.parent.name)
                parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15]))  # with ended children
        ours = added = {os.getpid()}  # and whatever it started, directly or indirectly
        while added:
            added = {pid for pid, parent in parents.items() if parent in added} - ours
            ours = ours | added
        ticks -= sum(spent.get(pid, 0) for pid in ours)
        return self._clock(), ticks / os.sysconf("SC_CLK_TCK")
