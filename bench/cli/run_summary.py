"""What a person reads in the terminal: a line a case while it runs, a table and an account at the end."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.judge.duel import ALL_16_BIT, Goal, Standing, duels, goal, standings
from bench.judge.efficiency import efficiencies
from bench.judge.flags import flags
from bench.model.ceilings import Ceilings, by_run, manner
from bench.model.ceilings import rows as ceiling_rows
from bench.model.roofline import calibrated, of_roof, row_traffic
from bench.spec import Problem
from bench.store.parquet import own
from bench.store.schema import Measurement

if TYPE_CHECKING:
    import pandas as pd

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
DRIFTED = 0.02
"""Largest share by which a sentinel may move in a run."""
WIDTH = 400
"""Wide enough for any row: the table takes what it needs, and a flag cut off would be a flag not shown."""


def seconds_text(seconds: float) -> str:
    """Three significant digits with the unit that suits: `1.23 ms`."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if seconds / scale < 999.5
                else f"{seconds / scale:.0f} {unit}"
            )
    return f"{seconds * 1e9:.3g} ns"


def duration_text(seconds: float) -> str:
    """Minutes and seconds, from an hour on hours and minutes: `1 min 05 s`, `7 h 30 min`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def rate_text(row: Measurement) -> str:
    """FLOP/s or bytes/s, as its operator is quoted; empty without a time or a count."""
    amount = row.flop if row.rate == "flop" else row.byte
    if not row.median_s or not amount:
        return ""
    rate = amount / row.median_s
    scale, prefix = next((s, p) for s, p in PREFIXES if rate >= s)
    return f"{rate / scale:.4g} {prefix}{'FLOP' if row.rate == 'flop' else 'B'}/s"


def interval_text(row: Measurement) -> str:
    """Half the 95 % interval's width as a share of the median: `±0.4 %`."""
    if row.median_s is None or row.low_s is None or row.high_s is None:
        return "unknown" if row.median_s is not None else ""
    return f"±{50 * (row.high_s - row.low_s) / row.median_s:.1f} %"


def progress_line(number: int, total: int, row: Measurement, problem: Problem, left_s: float | None) -> str:
    """One visit, done: `[ 12/210] gemm/square onednn float32 m=64 ...   4.2 us ±0.4 %   1 min 05 s left`."""
    head = f"[{number:{len(str(total))}}/{total}] {row.sweep} {row.implementation} {problem}"
    head += _manner(row) + (f" visit {row.visit + 1}" if row.visit else "")
    if row.status == "ok" and row.median_s is not None:
        tail = f"{seconds_text(row.median_s):>8} {interval_text(row):>8} {rate_text(row):>14}"
    else:
        tail = f"{row.status}: {row.reason}"
    left = f"   {duration_text(left_s)} left" if left_s else ""
    return f"{head:<78} {tail}{left}"


def table(rows: Sequence[Measurement], problems: Sequence[Problem]) -> str:
    """Every measured case: median, interval, visits, rate, share of the calibrated roof, limiter, flags."""
    roofs = _ceilings(rows)
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("case", no_wrap=True)
    for name in ("median", "95 %", "visits", "rate", "of roof"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("limiter", no_wrap=True)
    shown.add_column("flags", no_wrap=True)
    sweep = None
    for row, problem in zip(rows, problems, strict=True):
        if row.status in ("unsupported", "skipped"):
            continue
        if row.sweep != sweep:
            shown.add_row(f"[bold]{row.sweep}[/bold]")
            sweep = row.sweep
        shown.add_row(*_cells(row, problem, roofs.get(manner(row.cache, row.threads_asked), Ceilings())))
    if not shown.row_count:
        return ""
    return "\n".join(lines_of(shown))


def efficiency_table(frame: pd.DataFrame) -> Iterator[str]:
    """For each device and run: every implementation of every memory-bound operator, by region.

    Imported rows are left out. ValueError if a run has no copy to be held against.
    """
    frame = _measured(frame)
    roofs = by_run(ceiling_rows(frame))
    for (device, run_id), some in frame.groupby(["device", "run_id"], sort=True):
        ceilings = roofs.get((str(device), str(run_id), "cold"), Ceilings())
        rows = cast("Iterator[Measurement]", some.itertuples(index=False, name="Row"))
        found = list(efficiencies(rows, ceilings))
        cache = some["cache_byte"].iloc[0] / 2**20
        yield f"{device} {run_id}: regions by the bytes of a launch, last-level cache {cache:.4g} MiB"
        if not found:
            yield "no memory-bound operator has a time in this run"
            continue
        shown = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("operator", "kind", "region", "implementation"):
            shown.add_column(name, no_wrap=True)
        for name in ("cases", "of copy", "lowest to highest", "best other / ours", "lowest to highest"):
            shown.add_column(name, justify="right", no_wrap=True)
        for one in found:
            shown.add_row(
                *(one.operator, one.kind, one.region, one.implementation, str(len(one.of_copy))),
                *_spread(one.of_copy),
                *_spread(one.versus_best),
            )
        yield from lines_of(shown)


def duel_table(frame: pd.DataFrame) -> Iterator[str]:
    """For each device, run and cache: ours against the library's GEMM, by region, and the worst cases.

    Imported rows are left out. ValueError if no run has a case that both timed.
    """
    frame = _measured(frame)
    roofs = by_run(ceiling_rows(frame))
    any_pair = False
    for (device, run_id, cache), some in frame.groupby(["device", "run_id", "cache"], sort=True):
        rows = cast("Iterator[Measurement]", some.itertuples(index=False, name="Row"))
        ceilings = roofs.get((str(device), str(run_id), str(cache)), Ceilings())
        found, doubtful = duels(rows, ceilings)
        if not found and not doubtful:
            continue
        any_pair = True
        yield f"{device} {run_id}, {cache} cache: seconds of the library / seconds of ours, above 1 is ahead"
        if doubtful:
            yield f"{doubtful} pairs are not compared: a flag casts doubt on one of the two"
        by_region = list(standings(found))
        if by_region:
            yield from _duel_lines(by_region, str(some["device_name"].iloc[0]))
    if not any_pair:
        raise ValueError(
            "no GEMM was timed by both triton and a cuBLAS in one run, so there is nothing to compare"
        )


def _measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Without what was imported: other people's times are not held against ours unasked."""
    ours = own(frame)
    if len(frame) and not len(ours):
        raise ValueError("all rows given are imported, so none of them can be held against ours")
    return ours


def _duel_lines(by_region: Sequence[Standing], device_name: str) -> Iterator[str]:
    shown = _without_cases()
    for name in ("cases", "goal median (min)", "median", "min", "geometric mean", "ahead", "behind"):
        shown.add_column(name, justify="right", no_wrap=True)
    worst = _without_cases()
    for name in ("ratio", "95 %"):
        worst.add_column(name, justify="right", no_wrap=True)
    for name in ("library", "lowest three cases"):
        worst.add_column(name, no_wrap=True)
    for one in by_region:
        numbers = [f"{value:.3f}" for value in (one.median, one.least, one.mean)]
        shares = [f"{100 * share:.0f} %" for share in (one.ahead, one.behind)]
        goals = _goal_text(goal(one.region, device_name))
        shown.add_row(one.region, one.implementation, str(len(one.duels)), goals, *numbers, *shares)
        # The lowest of all 16-bit shapes are among the lowest of their regions.
        for lost in one.duels[:3] if one.region != ALL_16_BIT else ():
            ends = f"{lost.low:.3f} to {lost.high:.3f}"
            worst.add_row(one.region, one.implementation, f"{lost.ratio:.3f}", ends, lost.library, lost.name)
    yield from lines_of(shown)
    yield from lines_of(worst)


def _without_cases() -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("region", "implementation"):
        shown.add_column(name, no_wrap=True)
    return shown


def _goal_text(wanted: Goal | None) -> str:
    if wanted is None:
        return ""
    return f"{wanted.median:.2f}" + (f" ({wanted.least:.2f})" if wanted.least else "")


def _spread(values: Sequence[float]) -> tuple[str, str]:
    """Median, and both ends where there are several."""
    if not values:
        return "", ""
    ends = f"{values[0]:.2f} to {values[-1]:.2f}" if len(values) > 1 else ""
    return f"{statistics.median(values):.2f}", ends


def lines_of(shown: Table) -> list[str]:
    """The table as it is printed, as wide as it needs to be."""
    out = StringIO()
    Console(file=out, width=WIDTH, highlight=False).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def _manner(row: Measurement) -> str:
    """What is unusual about how it was measured."""
    how = manner(row.cache, row.threads_asked)
    return f" {how.removeprefix('cold, ')}" if how != "cold" else ""


def _ceilings(rows: Sequence[Measurement]) -> dict[str, Ceilings]:
    """Manner of measuring -> ceilings; without warm ones, warm rows are held against the cold."""
    found = {how: ceilings for (_, _, how), ceilings in by_run(rows).items()}
    return {"warm": found.get("cold", Ceilings())} | found


def _cells(row: Measurement, problem: Problem, ceilings: Ceilings) -> list[str]:
    name = f"  {row.implementation} {problem}{_manner(row)}"
    if row.status != "ok" or row.median_s is None:
        return [name, row.status, "", "", "", "", "", row.reason]
    roof = calibrated(row.flop, *row_traffic(row), row.arithmetic, row.dtype, ceilings)
    reached = of_roof(row.median_s, roof.seconds if roof else None)
    return [
        name,
        seconds_text(row.median_s),
        interval_text(row),
        _visits_text(row),
        rate_text(row),
        f"{100 * reached:.0f} %" if reached else "",
        roof.limiter if roof else "",
        " ".join(flags(row, ceilings)),
    ]


def _visits_text(row: Measurement) -> str:
    """How many visits the median is of, and of how many in all."""
    published, aside = row.visits or 1, len(row.set_aside or ())
    return f"{published} of {published + aside}" if aside else str(published)


def account(
    rows: Sequence[Measurement], wall_s: float, parts_s: dict[str, float], started_s: float | None = None
) -> list[str]:
    """How many rows of which status, why some have no time, and where the wall time went.

    `started_s` were spent starting workers; None: not told, so part of the rest.
    """
    counts = Counter(row.status for row in rows)
    lines = [f"{len(rows)} rows: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())]
    reasons = Counter((r.status, _general(r.reason)) for r in rows if r.status != "ok")
    lines += [f"  {n} {status}: {reason}" for (status, reason), n in reasons.most_common(12)]
    if len(reasons) > 12:
        lines.append(f"  ... and {len(reasons) - 12} more reasons, in the results")
    named = {"measure_s": "measuring", "setup_s": "set-up", "check_s": "checking"}
    shares = [f"{what} {_share(parts_s[part], wall_s)}" for part, what in named.items()]
    if tuning_s := sum(row.tuning_s or 0.0 for row in rows):
        shares[1] += f", {duration_text(tuning_s)} of it choosing configurations"
    if started_s is not None:
        shares.append(f"starting the worker {_share(started_s, wall_s)}")
    rest_s = max(0.0, wall_s - sum(parts_s.values()) - (started_s or 0.0))
    lines.append(f"{duration_text(wall_s)}: {', '.join(shares)}, harness {_share(rest_s, wall_s)}")
    return lines


def left_text(path: Path, rows: int, resumed: bool) -> str:
    """What became of a run that was cut short."""
    done = "going on with" if resumed else "recovered"
    return f"{done} an unfinished run: {rows} rows, {path}"


def sentinel_lines(rows: Sequence[Measurement]) -> list[str]:
    """How far the ceilings moved that were looked at again and again."""
    moved, shares = [], []
    for row in rows:
        if row.role != "measurement" and row.visit_samples and len(row.visit_samples) > 2 and row.samples_s:
            ends = list(itertools.accumulate(row.visit_samples, initial=0))
            medians = [statistics.median(row.samples_s[a:b]) for a, b in itertools.pairwise(ends)]
            share = (max(medians) - min(medians)) / min(medians)
            shares.append(share)
            moved.append(f"{row.operator} {row.dtype} by {100 * share:.1f} %")
    if not moved:
        return []
    line = f"sentinels moved in the course of the run: {', '.join(moved)}"
    return [line + (", so the machine drifted" if max(shares) > DRIFTED else "")]


def _share(seconds: float, wall_s: float) -> str:
    return f"{seconds:.1f} s ({100 * seconds / wall_s:.0f} %)"


def _general(reason: str) -> str:
    """The reason without its numbers, so that alike ones are counted together."""
    return re.sub(r"(?<![\w=.])\d[\d.]*(e[+-]?\d+)?\b", "...", reason)
