"""Summaries in the terminal: a line for each visit of a run, and tables and an account at its end."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench.case_name import row_name
from bench.cli.table import lines_of, table
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import (
    alike_texts,
    amount_text,
    count_text,
    duration_text,
    end_of,
    half_text,
    memory_text,
    seconds_text,
    share_text,
)
from bench.judge.duel import ALL_16_BIT, Standing, duels, goal, standings
from bench.judge.efficiency import efficiencies
from bench.judge.flags import FLAGS, SUSPECT, disturbances
from bench.judge.frame import Run, runs
from bench.judge.noise import noise_of
from bench.model.ceilings import VARIED, Ceiling, Ceilings
from bench.model.predict import reached
from bench.store.schema import Measurement, RunKey

DRIFTED = 0.02
"""Largest share by which a sentinel may move in a run."""
REASONS = 3
"""Most reasons why cases have no time that are given."""
LEAST_COMMON = 4
"""A flag on fewer rows than this is never reported as one of the whole run."""


def rate_text(row: Measurement) -> str:
    """FLOP/s or bytes/s, as its operator is quoted; empty without a time or a count."""
    amount = row.flop if row.rate == "flop" else row.byte
    if not row.median_s or not amount or not row.is_timed:
        return ""
    return amount_text(amount / row.median_s, "FLOP/s" if row.rate == "flop" else "B/s")


def progress_line(number: int, total: int, row: Measurement, left_s: float | None, most: int) -> str:
    """One visit, done: `[ 12/210] gemm/square-onednn-float32-...   4.2 us ±0.4 %   1 min 05 s left`.

    The beginning of a long name is left out where the line would have more than `most` columns.
    """
    head = f"[{number:{len(str(total))}}/{total}] "
    name = row_name(row) + (f" visit {row.visit + 1}" if row.visit else "")
    if row.status == "ok" and row.median_s is not None:
        interval = half_text(row.median_s, row.low_s, row.high_s)
        tail = f" {seconds_text(row.median_s):>8} {interval:>8} {rate_text(row):>14}"
    else:
        tail = f" {row.status}: {row.reason}"
    left = f"   {duration_text(left_s):>12} left" if left_s else " " * 20
    room = max(12, most - len(head) - len(tail) - len(left))
    return f"{head}{end_of(name, room):<{room}}{tail}{left}".rstrip()


def case_table(rows: Sequence[Measurement]) -> str:
    """Every measured case: median, interval, visits, rate, share of the calibrated roof, bound, flags.

    A flag that most rows have says something of the run: it is named once, below.
    """
    of_rows = [replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(rows)]
    run_of = {run.key: run for run in of_rows}
    bound_of = {id(row): bound for run in of_rows for row, bound in zip(run.rows, run.bounds, strict=True)}
    shown = table("case", ">median", ">95 %", ">visits", ">rate", ">of roof", "bound by", "flags")
    measured = [row for row in rows if row.status not in ("unsupported", "skipped")]
    flags_of = [run_of[RunKey.of(row)].flags_of(row) for row in measured]
    counts = Counter(name for flags in flags_of for name in flags)
    common = [flag for flag in FLAGS if counts[flag.name] > max(LEAST_COMMON, len(measured) / 2)]
    for row, flags in zip(measured, flags_of, strict=True):
        own = [name for name in flags if name not in {flag.name for flag in common}]
        shown.add_row(*_cells(row, run_of[RunKey.of(row)], bound_of[id(row)], own))
    notes = [f"{counts[flag.name]} of {len(measured)} rows are {flag.name}: {flag.means}" for flag in common]
    return "\n".join([*lines_of(shown), *notes])


def efficiency_table(given: Sequence[Run]) -> Iterator[str]:
    """For each device and run: every implementation of every memory-bound operator, by region.

    Imported rows are left out. UserError if a run has no copy to be compared with.
    """
    for run in _measured(given):
        regions = list(efficiencies(run))
        cache = memory_text(run.rows[0].cache_byte)
        yield f"{run.device} {run.name}: regions by the bytes of a launch, last-level cache {cache}"
        if not regions:
            yield "no memory-bound operator has a time in this run"
            continue
        names = ("operator", "kind", "region", "implementation", ">cases", ">of copy", ">lowest to highest")
        shown = table(*names, ">best other / ours", ">lowest to highest")
        for row in regions:
            shown.add_row(
                *(row.operator, row.kind, row.region, row.implementation, str(len(row.of_copy))),
                *_spread(row.of_copy),
                *_spread(row.versus_best),
            )
        yield from lines_of(shown)


def duel_table(given: Sequence[Run]) -> Iterator[str]:
    """For each device, run and cache: ours against the library's GEMM, by region, and the worst cases.

    Imported rows are left out. UserError if no run has a case that both timed.
    """
    any_pair = False
    for run in _measured(given):
        for cache in run.caches:
            pairs, suspect = duels(run, cache)
            if not pairs and not suspect:
                continue
            any_pair = True
            yield (
                f"{run.device} {run.name}, {cache} cache: "
                "seconds of the library / seconds of ours, above 1 is ahead"
            )
            if suspect:
                yield f"not compared: {count_text(suspect, 'pair')} in which a time is suspect"
            by_region = list(standings(pairs))
            if by_region:
                yield from _duel_lines(by_region, run.device_name)
    if not any_pair:
        raise UserError(
            "no GEMM was timed by both triton and a cuBLAS in one run, so there is nothing to compare"
        )


def _measured(given: Sequence[Run]) -> list[Run]:
    """The runs that are not imported: times of others are not compared with ours unless asked for."""
    ours = [run for run in given if not run.imported]
    if given and not ours:
        raise UserError("all rows given are imported, so there is none of ours to judge")
    return ours


def _duel_lines(by_region: Sequence[Standing], device_name: str) -> Iterator[str]:
    heads = (">cases", ">goal median (min)", ">median", ">min", ">geometric mean", ">ahead", ">behind")
    shown = table("region", "implementation", *heads)
    worst = table("region", "implementation", ">ratio", ">95 %", "library", "lowest three cases")
    for standing in by_region:
        numbers = [f"{value:.3f}" for value in (standing.median, standing.least, standing.mean)]
        shares = [share_text(share) for share in (standing.ahead, standing.behind)]
        wanted = goal(standing.region, device_name)
        names = standing.region, standing.implementation
        shown.add_row(*names, str(len(standing.duels)), wanted.bars if wanted else "", *numbers, *shares)
        # The lowest of all 16-bit shapes are among the lowest of their regions.
        for lost in standing.duels[:3] if standing.region != ALL_16_BIT else ():
            is_known = 0 < lost.low <= lost.high < math.inf
            ends = f"{lost.low:.3f} to {lost.high:.3f}" if is_known else "unknown"
            worst.add_row(*names, f"{lost.ratio:.3f}", ends, lost.library, lost.name)
    yield from lines_of(shown)
    yield from lines_of(worst)


def _spread(values: Sequence[float]) -> tuple[str, str]:
    """The median, and the lowest and highest value where there are several."""
    if not values:
        return "", ""
    ends = f"{values[0]:.2f} to {values[-1]:.2f}" if len(values) > 1 else ""
    return f"{statistics.median(values):.2f}", ends


def _cells(row: Measurement, run: Run, bound_by: str, flags: Sequence[str]) -> list[str]:
    name = row_name(row)
    if row.status != "ok" or row.median_s is None:
        return [name, row.status, "", "", "", "", "", row.reason]
    return [
        name,
        seconds_text(row.median_s),
        half_text(row.median_s, row.low_s, row.high_s),
        _visits_text(row),
        rate_text(row),
        reached_text(row, run.roof_of(row)),
        bound_by,
        " ".join(flags),
    ]


def _visits_text(row: Measurement) -> str:
    """The number of visits that the median is taken over, and of all visits."""
    published, aside = row.visits or 1, len(row.set_aside or ())
    return f"{published} of {published + aside}" if aside else str(published)


def account(
    rows: Sequence[Measurement], wall_s: float, parts_s: Mapping[str, float], started_s: float | None = None
) -> list[str]:
    """How many cases have a time, why others have none, and where the wall time went.

    Ceilings that were skipped are left out, unless nothing else was measured.

    `started_s` were spent starting workers; None: not told, so part of the rest.
    """
    if asked := [row for row in rows if row.role == "measurement"]:
        rows = [*asked, *(row for row in rows if row.role != "measurement" and row.status != "skipped")]
    able = [row for row in rows if row.status != "unsupported"]
    timed, elsewhere = sum(row.status == "ok" for row in able), len(rows) - len(able)
    others = f"; {elsewhere:,} others cannot run on this device" if elsewhere else ""
    lines = [f"{timed:,} of {count_text(len(able), 'case')} have a time{others}"]
    untimed = [row for row in able if row.status != "ok"]
    texts = alike_texts(row.reason for row in untimed)
    reasons = Counter((row.status, texts[row.reason]) for row in untimed)
    # What failed comes before what nobody tried.
    order = sorted(reasons.items(), key=lambda item: (item[0][0] == "skipped", -item[1]))
    lines += [f"  {n} {status}: {reason}" for (status, reason), n in order[:REASONS]]
    if len(reasons) > REASONS:
        lines.append(f"  ... and {count_text(len(reasons) - REASONS, 'more reason')}, in the rows")
    named = {"measure_s": "measuring", "setup_s": "set-up", "check_s": "checking"}
    shares = [f"{what} {_share(parts_s.get(part, 0.0), wall_s)}" for part, what in named.items()]
    if tuning_s := sum(row.tuning_s or 0.0 for row in rows):
        shares[1] += f", {duration_text(tuning_s)} of it choosing configurations"
    if started_s is not None:
        shares.append(f"starting the worker {_share(started_s, wall_s)}")
    rest_s = max(0.0, wall_s - sum(parts_s.values()) - (started_s or 0.0))
    lines.append(f"{duration_text(wall_s)}: {', '.join(shares)}, harness {_share(rest_s, wall_s)}")
    return lines


def reached_sentence(run: Run) -> str:
    """What the ceilings of the run say of the device, in one sentence; empty without ceilings."""
    ceilings = run.measured_ceilings.get("cold")
    if ceilings is None:
        return ""
    reached = []
    if copy := ceilings.bandwidth_byte_per_s.get(0.5):
        speeds = ": its memory has two speeds, so shares of memory's roof are ranges" if copy.speeds else ""
        reached.append(f"copies {_rate_text(copy, 'B/s')}{speeds}")
    peaks = {dtype: each for (kind, dtype), each in ceilings.peak_flop_per_s.items() if kind == "matrix"}
    if peaks:
        listed = ", ".join(f"{_rate_text(peak, 'FLOP/s')} in {dtype}" for dtype, peak in peaks.items())
        reached.append(f"multiplies matrices at {listed}")
    if ceilings.launch_s:
        # A CPU launches nothing: it is the time of a call into torch that computes next to nothing.
        does = "launches a kernel" if run.rows[0].device_kind == "cuda" else "calls a function of PyTorch"
        reached.append(f"{does} in {seconds_text(ceilings.launch_s)}")
    return f"{run.device_name} {'; '.join(reached)}." if reached else ""


def _rate_text(roof: Ceiling, unit: str) -> str:
    """`80 GB/s`; `46 or 80 GB/s` where the visits to it have two speeds, `46 to 80 GB/s` where they vary."""
    ends, word = roof.speeds or (roof.slow_per_s, roof.per_s), "or" if roof.speeds else "to"
    slow, fast = (amount_text(end, unit) for end in ends)
    return fast if slow == fast else f"{slow.removesuffix(fast.partition(' ')[2]).rstrip()} {word} {fast}"


def reached_text(row: Measurement, ceilings: Ceilings) -> str:
    """The share of its roof that a row reached; a range where visits to the roof differ."""
    share = reached(row, ceilings)
    most = reached(row, ceilings.slow)
    if share is None or most is None or most < (1 + VARIED) * share:
        return share_text(share)
    return f"{share_text(share).removesuffix(' %')} to {share_text(most)}"


def trust_lines(run: Run) -> Iterator[str]:
    """How many rows are suspect and by which flags, and how much the machine varied."""
    timed = [
        SUSPECT.intersection(flags) for row, flags in zip(run.rows, run.flags, strict=True) if row.is_timed
    ]
    names = Counter(name for flags in timed for name in flags)
    suspect = sum(map(bool, timed))
    by = f" ({', '.join(f'{count} {name}' for name, count in names.most_common())})" if names else ""
    yield f"{suspect} of {count_text(len(timed), 'time')} are suspect{by}"
    yield from noise_lines(run.rows)
    yield from sentinel_lines(run.rows)


def noise_lines(rows: Sequence[Measurement]) -> list[str]:
    """How much the machine varied in this run, which every interval holds."""
    timed = [row for row in rows if row.is_timed]
    noise = noise_of(timed, [bool(disturbances(row)) for row in timed])
    if not noise.text:
        return []
    return [f"from visit to visit, 95 of 100 times changed by at most: {noise.text}"]


def sentinel_lines(rows: Sequence[Measurement]) -> list[str]:
    """How far the sentinels, the ceilings that were visited throughout the run, moved."""
    moved, shares = [], []
    for row in rows:
        if row.role != "measurement" and len(row.visit_samples_s) > 2:
            medians = [float(np.median(samples_s)) for samples_s in row.visit_samples_s]
            share = (max(medians) - min(medians)) / min(medians)
            shares.append(share)
            moved.append(f"{row_name(row)} by {share_text(share, 1)}")
    if not moved:
        return []
    line = f"what was measured again and again during the run varied: {', '.join(moved)}"
    return [line + (", so the machine drifted" if max(shares) > DRIFTED else "")]


def _share(seconds: float, wall_s: float) -> str:
    return f"{share_text(seconds / wall_s)}"
