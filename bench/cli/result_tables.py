"""What `python -m bench table` prints beside every case: implementations side by side, and ceilings."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.case_name import problem_name
from bench.cli.run_summary import best_text
from bench.cli.table import table_lines
from bench.errors import UserError
from bench.format import ends_text, seconds_text
from bench.judge.frame import DeviceRun
from bench.judge.implementations import Side, is_own, side_by_side


def implementation_lines(runs: Sequence[DeviceRun]) -> Iterator[str]:
    """A line a size, a column an implementation, of what two or more implementations timed, run by run.

    UserError if there is no such size.
    """
    any_size = False
    for run in runs:
        by_operator: dict[tuple[str, str, str], list[tuple[str, Mapping[str, Side]]]] = defaultdict(list)
        for (operator, parameters, cache, threads), sides in side_by_side(run):
            by_operator[operator, cache, threads].append((problem_name(json.loads(parameters)), sides))
        for (operator, cache, threads), sizes in by_operator.items():
            any_size = True
            on = "" if threads == "all" else ", one thread"
            yield f"{run.device} {run.name}: {operator}, {cache} cache{on}"
            yield from _side_lines(sizes)
    if not any_size:
        raise UserError("no size was timed by two implementations in one run, so there is nothing to compare")
    yield "in brackets: times the time of the fastest library beside it, and the 95 % interval of that"


def beside_lines(run: DeviceRun) -> Iterator[str]:
    """`mine:f takes 4.02 times the time of aten at rows4096-length1024 (3.4 to 4.6)`, by size and kernel.

    Of kernels of one's own, which have all been found right, and of ours.
    """
    for (_, parameters, _, _), sides in side_by_side(run):
        for name, side in sides.items():
            if is_own(name) and not math.isnan(side.ratio):
                interval = f" ({side.low:.2f} to {side.high:.2f})" if side.low else ", without an interval"
                times = f"takes {side.ratio:.2f} times the time of {_fastest(sides)}"
                yield f"{name} {times} at {problem_name(json.loads(parameters))}{interval}"


def _side_lines(sizes: Sequence[tuple[str, Mapping[str, Side]]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for _, sides in sizes for name in sides))
    lines = [
        (size, *(_side_text(sides.get(name)) for name in names), _fastest(sides)) for size, sides in sizes
    ]
    return table_lines(("size", *(f">{name}" for name in names), "fastest library"), lines)


def _fastest(sides: Mapping[str, Side]) -> str:
    """The library with which the others are compared: the faster of cuBLAS and Inductor, say."""
    libraries = {name: side.median_s for name, side in sides.items() if not is_own(name)}
    return min(libraries, key=lambda name: libraries[name], default="")


def _side_text(side: Side | None) -> str:
    """`1.2 ms (x 1.31, 1.28 to 1.34)`; the time alone where no library is beside it."""
    if side is None:
        return ""
    time = seconds_text(side.median_s)
    if math.isnan(side.ratio):
        return time
    interval = f", {side.low:.2f} to {side.high:.2f}" if side.low else ", no interval"
    return f"{time} (x {side.ratio:.2f}{interval})"


def ceilings_lines(runs: Sequence[DeviceRun]) -> Iterator[str]:
    """The ceilings of each device, run and condition with 95 % intervals.

    UserError if no row is a ceiling.
    """
    if not any(run.measured_ceilings for run in runs):
        raise UserError("no row among these is a ceiling: sweeps/ceilings run with every measurement")
    for run in runs:
        for condition, ceilings in sorted(run.measured_ceilings.items()):
            yield f"{run.device} {run.name}: {condition}"
            for ceiling in ceilings.listed():
                value = best_text(ceiling.median, ceiling.value, ceiling.unit)
                interval = ends_text(ceiling.low, ceiling.high, ceiling.unit)
                yield f"  {ceiling.name:<40} {value:>34}   {interval}"
