"""Do the clocks agree? Processes that time the same launches, and what their readings say side by side.

Our clocks and those instruments that leave a process as it was take turns in one process. Each of the others
has a process of its own, afterwards: CUPTI stays attached to a process that has used it, and nvbench wants to
be the main program. A process in which a capture has failed is replaced by another, which goes on with the
next case. Needs no torch. `python -m studies instruments`
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from bench.cli.table import table
from bench.device.detect import Device
from bench.format import ratio_text, share_text
from bench.selfcheck.clock_agreement import ClockReadings, Ratio, comparison
from bench.selfcheck.finding import Finding
from bench.selfcheck.groups import CheckGroup, Examination

READING = CheckGroup("studies.instrument_process:instruments", "instruments", 3600.0)
SHORT_S = 100e-6
"""Launches that take less time are shown, but the last line leaves them out: fixed costs differ there."""
APART = ("profiler", "cupti-python", "cuda-bench")
"""Instruments of a GPU that have a process of their own."""
WIDTH = 200

INCLUDES = {
    "host": "ours: perf_counter_ns around batches of calls",
    "Timer": "torch.utils.benchmark, wall time of blocks of calls; on a GPU with launching and a synchronize",
    "loop": "perf_counter around one plain loop",
    "graph": "ours: kernels of a CUDA graph and the gaps between them, no host",
    "stream": "ours: kernels queued behind a spin and the gaps between them, no host",
    "do_bench_cudagraph": "Triton's: kernels of a CUDA graph and the gaps between them, no host",
    "profiler": "torch.profiler (CUPTI), in a process of its own: the kernels alone, no gaps",
    "cupti-python": "CUPTI's activity records, in a process of their own: the kernels alone, no gaps",
    "graph, ring": "ours, each launch on data that is in memory",
    "stream, ring": "ours, each launch on data that is in memory",
    "cuda-bench": "nvbench, in a process of its own: one launch after a flush, behind a blocking kernel",
    "do_bench": "Triton's: one launch between two events after a flush that hides the host",
}


class Readings:
    """The turns of every instrument in every case, as the processes report them."""

    def __init__(self, device: Device, console: Console) -> None:
        self.device, self.console = device, console
        self.turns_s: dict[str, dict[str, list[float]]] = {}

    def take(self, part: str) -> bool:
        """Let processes read this part's instruments until every case had its turn; False if one died."""
        device, is_whole = self.device, True
        name = f"{device.name}, {device.sm_count} cores" if device.kind == "cpu" else str(device)
        begin: int | None = 0
        while begin is not None:
            settings = {"name": name, "part": part, "begin": begin}
            begin = None
            for finding in Examination(device, settings).findings(READING):
                begin = finding.numbers.get("again_from", begin)
                is_whole &= finding.level == "PASS"
                self._take_in(finding)
        return is_whole

    def _take_in(self, finding: Finding) -> None:
        if finding.sentence:
            self.console.print(finding.sentence, highlight=False, markup=False)
        for instrument, turns_s in finding.numbers.get("turns_s", {}).items():
            seen = [math.nan if seconds is None else seconds for seconds in turns_s]
            self.turns_s.setdefault(finding.name, {})[instrument] = seen

    def comparisons(self) -> Iterator[ClockReadings]:
        """The cases that our own clock has timed."""
        for case, turns_s in self.turns_s.items():
            if not set(turns_s) <= set(APART):
                yield comparison(case, turns_s)


def compare_instruments(device: Device, console: Console) -> int:
    """Print what the instruments read and how far they agree; the exit code."""
    readings = Readings(device, console)
    try:
        if not readings.take("together"):
            return 1
        for part in APART if device.kind == "cuda" else ():
            if not readings.take(part):
                console.print(f"{part} came to an early end; its readings so far are shown", highlight=False)
    finally:  # what was read before an interruption is worth showing, too
        print_report(console, list(readings.comparisons()))
    return 0


def reading_table(comparisons: Sequence[ClockReadings]) -> Table:
    """A row for each case: our median, then each other instrument's and ours as a multiple of it."""
    first, *others = comparisons[0].median_s
    pairs = [column for name in others for column in (f">{name}, us", f">{first} / it")]
    shown = table("case", f">{first}, us", *pairs)
    for each in comparisons:
        cells = [each.case, _microseconds(each.median_s[first])]
        for name in others:
            cells += [_microseconds(each.median_s[name]), _ratio_text(each.ours_over[name])]
        shown.add_row(*cells)
    return shown


def _microseconds(seconds: float) -> str:
    return "none seen" if math.isnan(seconds) else f"{1e6 * seconds:.1f}"


def _ratio_text(ratio: Ratio | None) -> str:
    return "unknown" if ratio is None else ratio_text(ratio.middle, ratio.low, ratio.high)


def worst(comparisons: Sequence[ClockReadings], other: str) -> str:
    """`ours / Timer: worst 0.8 % over 12 cases above 100 us`; short launches and unknown ratios left out."""
    off = [
        abs(ratio.middle - 1.0)
        for each in comparisons
        if next(iter(each.median_s.values())) > SHORT_S and (ratio := each.ours_over[other]) is not None
    ]
    above = f"above {1e6 * SHORT_S:.0f} us"
    if not off:
        return f"ours / {other}: no case {above} has a ratio"
    return f"ours / {other}: worst {share_text(max(off), 1)} over {len(off)} cases {above}"


def print_report(console: Console, comparisons: Sequence[ClockReadings]) -> None:
    """What each instrument's time includes, a table for each set of instruments, a line for each pair."""
    sets = dict.fromkeys(tuple(each.median_s) for each in comparisons)
    for name in dict.fromkeys(name for names in sets for name in names):
        console.print(f"{name:>20}  {INCLUDES[name]}", highlight=False)
    lines = []
    for names in sets:
        alike = [each for each in comparisons if tuple(each.median_s) == names]
        console.print(reading_table(alike))
        lines += [(other == "Timer", worst(alike, other)) for other in names[1:]]
    for _, line in sorted(lines, key=lambda pair: pair[0]):  # Timer's last: it is there on every device
        console.print(line, highlight=False)
