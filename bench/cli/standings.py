"""`python -m bench ceilings`, `goals`, `duel`, `efficiency`: what devices and our kernels reach."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

from bench.case_name import problem_name
from bench.cli.table import markdown_lines as markdown_table
from bench.cli.table import table_lines
from bench.device.datasheet import find_datasheet
from bench.errors import UserError, unknown
from bench.format import amount_text, count_text, ends_text, memory_text, share_text
from bench.judge.frame import DeviceRun, known_runs
from bench.judge.goals import Goal, GoalOutcome, Verdict, goal_of, goals, outcomes
from bench.judge.noise import OURS
from bench.judge.standings import ALL_16_BIT, Standing, duels, efficiencies, median_ends
from bench.model.calibrated_runs import Known


def of_operator(name: str | None) -> list[Goal]:
    """UserError if no goal is about an operator of this name."""
    about = [goal for goal in goals() if name in (None, goal.operator)]
    if not about:
        known = dict.fromkeys(goal.operator for goal in goals())
        raise UserError(unknown("operator with goals", str(name), "goals", known))
    return about


MOST_REASONS = 3
"""Most goals that failed whose reasons are shown unless all are asked for."""
FIRST: tuple[Verdict, ...] = ("REFUTED", "MISSED", "UNDECIDED", "REACHED")
"""Verdicts in the order in which they are shown; NO CASE says nothing."""


def summary_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A line for each operator with goals."""
    lines = []
    for operator in dict.fromkeys(goal.operator for goal in about):
        of = [goal for goal in about if goal.operator == operator]
        medians = [goal.median for goal in of]
        lists = ([*goal.devices] for goal in of), ([goal.ours] for goal in of), ([goal.unit] for goal in of)
        devices, ours, units = (", ".join(dict.fromkeys(chain.from_iterable(each))) for each in lists)
        ends = f"{min(medians):.2f} to {max(medians):.2f}"
        lines.append((operator, str(len(of)), devices, ours, ends, units))
    yield from table_lines(("operator", ">goals", "devices", "ours", ">goal medians", "of what"), lines)
    yield f"{count_text(len(about), 'goal')}: --all lists each; RESULT... says what runs make of them"


def goal_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A line for each goal, without the reasons."""
    names = ("operator", "region", "devices", "ours", ">goal median (min)", "of what")
    yield from table_lines(names, [(goal.operator, *_named(goal)) for goal in about])


def markdown_lines(about: Sequence[Goal]) -> Iterator[str]:
    """A Markdown table of the goals with their reasons."""
    names = ("region", "devices", "ours", "median (min)", "of what", "rests on", "refuted by")
    yield from markdown_table(names, [(*_named(goal), goal.rests_on, goal.refuted_by) for goal in about])


def _named(goal: Goal) -> tuple[str, ...]:
    return goal.region, ", ".join(goal.devices), goal.ours, goal.bars, goal.unit


def outcome_lines(runs: Sequence[DeviceRun], about: Sequence[Goal], every: bool) -> Iterator[str]:
    """The verdicts of each run on a device with goals, then why those that failed were expected.

    `every`: also goals of which the run has no case, and all reasons. UserError if no run can be judged.
    """
    own = [run for run in runs if not run.imported]
    judged = [(run, [each for each in outcomes(run) if each.goal in about]) for run in own]
    if not any(each for _, each in judged):
        if not own:
            raise UserError(
                f"these {count_text(len(runs), 'run')} are imported, and goals are about our own kernels "
                f"({OURS}), which only runs of roofbench time"
            )
        devices = ", ".join(dict.fromkeys(device for goal in about for device in goal.devices))
        here = ", ".join(dict.fromkeys(run.device_name for run in own))
        raise UserError(f"no run here is on a device with goals, which are {devices}; these are on {here}")
    for run, of_run in judged:
        shown = [each for verdict in FIRST for each in of_run if each.verdict == verdict]
        if of_run:
            yield f"{run.device} {run.name}, cold cache"
            yield from _verdicts(of_run if every else shown)
            yield from _reasons(shown, len(shown) if every else MOST_REASONS)
    counts = Counter(each.verdict for _, of_run in judged for each in of_run)
    yield f"goals: {', '.join(f'{number} {verdict}' for verdict, number in counts.most_common())}"


def _verdicts(outcomes: Sequence[GoalOutcome]) -> Iterator[str]:
    lines = []
    for goal, verdict, of in outcomes:
        numbers = ("", "", "")
        if of:
            low, high = median_ends(of)
            median = statistics.median(each.value for each in of)
            numbers = (f"{median:.2f}", f"{low:.2f} to {high:.2f}", f"{of[0].value:.2f}")
        words = (goal.operator, goal.region, goal.ours, goal.bars, goal.unit, verdict)
        lines.append((*words, str(len(of)), *numbers))
    names = ("operator", "region", "ours", ">goal median (min)", "of what", "verdict")
    return table_lines((*names, ">cases", ">median", "95 %", ">min"), lines)


def _reasons(shown: Sequence[GoalOutcome], most: int) -> Iterator[str]:
    failed = [each for each in shown if each.verdict in ("REFUTED", "MISSED")]
    for goal, verdict, of in failed[:most]:
        lowest = problem_name(json.loads(of[0].parameters))
        yield f"{goal.operator}, {goal.region}: {verdict}, lowest {lowest}"
        yield f"  rested on: {goal.rests_on}"
        yield f"  refuted by: {goal.refuted_by}"
    if len(failed) > most:
        yield f"... and {len(failed) - most} more that failed: --all gives their reasons"


def efficiency_table(given: Sequence[DeviceRun]) -> Iterator[str]:
    """Every implementation of every memory-bound operator by region, for each device and run.

    Imported rows are left out. UserError if a run has no copy to be compared with.
    """
    for run in _measured(given):
        cache = memory_text(run.rows[0].cache_byte)
        names = ("operator", "kind", "region", "implementation", ">cases", ">of copy", ">lowest to highest")
        lines = []
        for of_copy, against in efficiencies(run):
            place = (of_copy.operator, of_copy.kind, of_copy.region, of_copy.implementation)
            lines.append((*place, str(len(of_copy.figures)), *_spread(of_copy), *_spread(against)))
        yield f"{run.device} {run.name}: regions by the bytes of a launch, last-level cache {cache}"
        yield from table_lines((*names, ">best other / ours", ">lowest to highest"), lines)
        if not lines:
            yield "no memory-bound operator has a time in this run"


def duel_table(given: Sequence[DeviceRun]) -> Iterator[str]:
    """Our GEMM against the library's by region, and the worst cases, for each device, run and cache.

    Imported rows are left out. UserError if no run has a case that both timed.
    """
    any_pair = False
    for run in _measured(given):
        for cache in run.caches:
            regions, suspect = duels(run, cache)
            if not regions and not suspect:
                continue
            any_pair = True
            yield (
                f"{run.device} {run.name}, {cache} cache: "
                "seconds of the library / seconds of ours, above 1 is ahead"
            )
            if suspect:
                yield f"not compared: {count_text(suspect, 'pair')} in which a time is suspect"
            yield from _duel_lines(regions, run.device_name)
    if not any_pair:
        raise UserError(
            "no GEMM was timed by both triton and a cuBLAS in one run, so there is nothing to compare"
        )


def _measured(given: Sequence[DeviceRun]) -> list[DeviceRun]:
    """The runs that are not imported: times of others are compared with ours only on request."""
    ours = [run for run in given if not run.imported]
    if given and not ours:
        raise UserError("all rows given are imported, so there is none of ours to judge")
    return ours


def _duel_lines(regions: Sequence[Standing], device_name: str) -> Iterator[str]:
    heads = (">cases", ">goal median (min)", ">median", ">min", ">geometric mean", ">ahead", ">behind")
    lines: list[Sequence[str]] = []
    worst: list[Sequence[str]] = []
    for each in regions:
        numbers = [f"{value:.3f}" for value in (each.median, each.least, each.mean)]
        shares = [share_text(share) for share in (each.ahead, each.behind)]
        wanted = goal_of(each.region, device_name)
        place = each.region, each.implementation
        bars = wanted.bars if wanted else ""
        lines.append((*place, str(len(each.figures)), bars, *numbers, *shares))
        # The lowest of all 16-bit shapes are among the lowest of their regions.
        for lost in each.figures[:3] if each.region != ALL_16_BIT else ():
            ends = f"{lost.low:.3f} to {lost.high:.3f}" if lost.low else "unknown"
            worst.append((*place, f"{lost.value:.3f}", ends, lost.opponent, lost.name))
    yield from table_lines(("region", "implementation", *heads), lines)
    names = ("region", "implementation", ">ratio", ">95 %", "library", "lowest three cases")
    yield from table_lines(names, worst)


def _spread(of: Standing | None) -> tuple[str, str]:
    """The median, and the lowest and highest value where there are several."""
    if of is None:
        return "", ""
    return f"{of.median:.2f}", f"{of.least:.2f} to {of.most:.2f}" if len(of.figures) > 1 else ""


# ---- ceilings


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
