"""The tables of a result: every case, implementations side by side, ceilings."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.case_name import problem_name, row_name
from bench.cli.findings import best_text, fastest_library
from bench.cli.table import table_lines
from bench.errors import UserError
from bench.format import (
    NOT_MEASURABLE,
    amount_text,
    ends_text,
    half_text,
    seconds_text,
    share_text,
    span_text,
)
from bench.judge.frame import DeviceRun
from bench.judge.implementations import Side, side_by_side
from bench.model.ceiling import VARIED
from bench.model.ceilings import Ceilings
from bench.model.predict import reached
from bench.store.schema import Measurement


def case_table(run: DeviceRun, of: Sequence[str] = ("measurement", "probe", "roof")) -> Iterator[str]:
    """Every measured case: median, interval, visits, rate, share of the calibrated roof, bound, flags.

    `of`: the roles of cases.
    """
    lines = [
        _cells(row, run, bound_by, flags)
        for row, flags, bound_by in zip(run.rows, run.flags, run.bounds, strict=True)
        if row.status not in ("unsupported", "skipped") and row.role in of
    ]
    names = ("case", ">median", ">95 %", ">visits", ">rate", ">of roof", "bound by", "flags")
    yield from table_lines(names, lines)


def _cells(row: Measurement, run: DeviceRun, bound_by: str, flags: Sequence[str]) -> list[str]:
    name = row_name(row)
    if row.status != "ok" or row.median_s is None:
        return [name, row.status, "", "", "", "", "", row.reason]
    # Of somebody else's run nothing is known but what he says.
    ends_s = run.run_ends_s(row) if row.source is None else (row.low_s, row.high_s)
    published, aside = row.visits or 1, len(row.set_aside or ())
    return [
        name,
        seconds_text(row.median_s),
        half_text(row.median_s, *ends_s),
        f"{published} of {published + aside}" if aside else str(published),
        rate_text(row),
        reached_text(row, run.roof_of(row)),
        bound_by,
        " ".join(flags),
    ]


def rate_text(row: Measurement) -> str:
    """FLOP/s or bytes/s, as its operator is quoted; empty without a time or a count."""
    amount = row.flop if row.rate == "flop" else row.byte
    if not row.median_s or not amount or not row.is_timed:
        return ""
    return amount_text(amount / row.median_s, "FLOP/s" if row.rate == "flop" else "B/s")


def reached_text(row: Measurement, ceilings: Ceilings) -> str:
    """The share of its roof that a row reached; a range where visits to the roof differ."""
    share = reached(row, ceilings)
    most = reached(row, ceilings.slow)
    if share is None or most is None or most < (1 + VARIED) * share:
        return share_text(share)
    return span_text(share_text(share), share_text(most))


def implementation_lines(runs: Sequence[DeviceRun]) -> Iterator[str]:
    """`side_lines` of every run, of sizes alone that two or more implementations timed.

    UserError if there is no such size.
    """
    tables = [(f"{run.device} {run.name}", *side_lines(run, compared=True)) for run in runs]
    if not any(len(lines) > 1 for lines in tables):
        raise UserError("no size was timed by two implementations in one run, so there is nothing to compare")
    for lines in tables:
        yield from lines if len(lines) > 1 else ()


def side_lines(run: DeviceRun, compared: bool = False) -> Iterator[str]:
    """A line a size, a column an implementation, by operator; with `compared` no size that stands alone."""
    sides = [of for _, of in side_by_side(run)]
    by_place = {side.row: side for of in sides for side in of.values()}
    fastest = {side.row: fastest_library(of) for of in sides for side in of.values()}
    for (operator, cache, threads), sizes in _by_size(run, by_place).items():
        if compared:
            sizes = {size: of for size, of in sizes.items() if not by_place.keys().isdisjoint(of.values())}
        if not sizes:
            continue
        problems = [json.loads(size) for size in sizes]
        shared = [name for name, word in problems[0].items() if isinstance(word, str)]
        shared = [name for name in shared if all(each.get(name) == problems[0][name] for each in problems)]
        words = problem_name({name: problems[0][name] for name in shared})
        head = [f"{operator} {words}".strip(), f"{cache} cache", *["one thread"] * (threads == "one")]
        yield ", ".join(head)
        names = list(dict.fromkeys(name for of in sizes.values() for name in of))
        libraries = {fastest[place] for of in sizes.values() for place in of.values() if place in fastest}
        names += ["fastest library"] if len(libraries) > 1 else []
        lines = []
        for problem, of in zip(problems, sizes.values(), strict=True):
            size = problem_name({name: word for name, word in problem.items() if name not in shared})
            size = size or problem_name(problem)
            texts = {name: _side_text(run, place, by_place) for name, place in of.items()}
            texts["fastest library"] = next((fastest[place] for place in of.values() if place in fastest), "")
            lines.append((size, *(texts.get(name, "") for name in names)))
        yield from table_lines(("size", *(f">{name}" for name in names)), lines)
    if by_place:
        yield "x: times the time of the fastest library beside it, with the 95 % interval of that"


def _by_size(
    run: DeviceRun, sides: Mapping[int, Side]
) -> Mapping[tuple[str, ...], Mapping[str, Mapping[str, int]]]:
    """(operator, cache, threads) -> parameters -> implementation -> its latest sound row, else its latest."""
    tables: dict[tuple[str, ...], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for place, row in enumerate(run.rows):
        if row.role == "measurement" and row.status != "unsupported" and not row.visit:
            table = tables[row.operator, row.cache, row.threads_asked or "all"]
            there = table[row.parameters].get(row.implementation)
            if there not in sides or place in sides:
                table[row.parameters][row.implementation] = place
    return tables


def _side_text(run: DeviceRun, place: int, sides: Mapping[int, Side]) -> str:
    """`1.2 ms (x 1.31, 1.28 to 1.34; 40 % of roof)`: no ratio without a library beside it, or if suspect."""
    row = run.rows[place]
    if not row.is_timed:
        return NOT_MEASURABLE if row.reason.startswith(NOT_MEASURABLE) else row.status
    told = []
    if (side := sides.get(place)) and not math.isnan(side.ratio):
        told = [f"x {side.ratio:.2f}, {f'{side.low:.2f} to {side.high:.2f}' if side.low else 'no interval'}"]
    elif not sides:
        told = [half_text(row.median_s, *run.run_ends_s(row))]
    told += [f"{share} of roof"] if (share := reached_text(row, run.roof_of(row))) else []
    told += ["suspect"] if run.suspect[place] else []
    return seconds_text(row.median_s) + (f" ({'; '.join(told)})" if told else "")


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
