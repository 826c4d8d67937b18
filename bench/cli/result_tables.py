"""What `python -m bench table` prints beside every case: implementations side by side, and ceilings."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from bench.case_name import problem_name
from bench.cli.table import table_lines
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import amount_text, ends_text, seconds_text, share_text
from bench.judge.frame import DeviceRun, known_runs
from bench.judge.implementations import Side, side_by_side
from bench.model.calibrated_runs import Known


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


def _side_lines(sizes: Sequence[tuple[str, Mapping[str, Side]]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for _, sides in sizes for name in sides))
    lines = [(size, *(_side_text(sides.get(name)) for name in names)) for size, sides in sizes]
    return table_lines(("size", *(f">{name}" for name in names)), lines)


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
    """The ceilings of each device, run and condition with 95 % intervals, and the calibrations of a GPU.

    UserError if no row is a ceiling.
    """
    if not any(run.measured_ceilings for run in runs):
        raise UserError("no row among these is a ceiling: sweeps/ceilings run with every measurement")
    for run in runs:
        calibrated = {of.ceilings.condition: of for of in known_runs([run], find_datasheet)}
        for condition, ceilings in sorted(run.measured_ceilings.items()):
            yield f"{run.device} {run.name}: {condition}"
            for ceiling in ceilings.listed():
                value = amount_text(ceiling.value, ceiling.unit)
                interval = ends_text(ceiling.low, ceiling.high, ceiling.unit)
                yield f"  {ceiling.name:<40} {value:>14}   {interval}"
            if condition in calibrated:
                yield from _calibration_lines(calibrated[condition])


def _calibration_lines(of: Known) -> Iterator[str]:
    plain, *fitted = of.calibrations
    whose = f", imported: {of.imported.partition(';')[0]}" if of.imported else ""
    yield f"  calibrations of matrix multiplications, {plain.dtype}{whose}"
    fit = "no fit: too few of its shapes"
    if fitted:
        fit = f"fitted to {fitted[0].shapes} shapes, to which it is off by {share_text(fitted[0].error, 1)}"
    yield f"  {'':<40} {'no fit':>14}   {fit}"
    machines = [asdict(calibration.machine) for calibration in of.calibrations]
    for name in machines[0]:
        texts = [_number(name, machine[name]) for machine in machines]
        yield f"  {name:<40} {texts[0]:>14}" + "".join(f"   {text}" for text in texts[1:])
    for calibration in of.calibrations:
        if errors := of.errors(calibration):
            which = "fitted" if calibration.fitted else "no fit"
            yield (
                f"  {which}: off by {share_text(errors.mape, 1)} on average on {errors.n} "
                f"matrix multiplications that calibrate nothing, median {share_text(errors.median, 1)}"
            )


def _number(name: str, value: float) -> str:
    for ending, unit in (("_byte_per_s", "byte/s"), ("flop_per_s", "FLOP/s"), ("_s", "s")):
        if name.endswith(ending) or name == ending.strip("_"):
            return amount_text(value, unit)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"
