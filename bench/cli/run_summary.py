"""Summaries of rows in the terminal: the table of cases, what a machine reaches, how far to trust a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.case_name import row_name
from bench.cli.table import table_lines
from bench.format import (
    NOT_MEASURABLE,
    amount_text,
    count_text,
    duration_text,
    half_text,
    in_common,
    seconds_text,
    share_text,
    without_numbers,
)
from bench.judge.flags import CONTENDED, FLAGS, SUSPECT, waited_share
from bench.judge.frame import DeviceRun
from bench.judge.noise import PUBLISHED, is_published
from bench.judge.within_run import scatter_text
from bench.model.ceiling import VARIED
from bench.model.ceilings import Ceilings
from bench.model.predict import reached
from bench.store.schema import Measurement

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


def case_table(run: DeviceRun) -> Iterator[str]:
    """Every measured case: median, interval, visits, rate, share of the calibrated roof, bound, flags.

    A flag that most rows have says something of the run: it is named once, below.
    """
    every = zip(run.rows, run.flags, run.bounds, strict=True)
    measured = [each for each in every if each[0].status not in ("unsupported", "skipped")]
    counts = Counter(name for _, flags, _ in measured for name in flags)
    common = [flag for flag in FLAGS if counts[flag.name] > max(LEAST_COMMON, len(measured) / 2)]
    lines = []
    for row, flags, bound_by in measured:
        own = [name for name in flags if name not in {flag.name for flag in common}]
        lines.append(_cells(row, run, bound_by, own))
    names = ("case", ">median", ">95 %", ">visits", ">rate", ">of roof", "bound by", "flags")
    yield from table_lines(names, lines)
    for flag in common:
        yield f"{counts[flag.name]} of {len(measured)} rows are {flag.name}: {flag.means}"


def _cells(row: Measurement, run: DeviceRun, bound_by: str, flags: Sequence[str]) -> list[str]:
    name = row_name(row)
    if row.status != "ok" or row.median_s is None:
        return [name, row.status, "", "", "", "", "", row.reason]
    # Of somebody else's run nothing is known but what he says.
    ends_s = run.run_ends_s(row) if row.source is None else (row.low_s, row.high_s)
    return [
        name,
        seconds_text(row.median_s),
        half_text(row.median_s, *ends_s),
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


def unusable_line(run: DeviceRun) -> str:
    """That others had the processors while most cases were measured; empty if they had not."""
    ran = [row for row in run.rows if row.is_timed or row.reason.startswith(NOT_MEASURABLE)]
    waited = [share for row in ran if (share := waited_share(row)) > CONTENDED]
    if run.rows[0].device_kind != "cpu" or 2 * len(waited) <= len(ran):
        return ""
    taken = f"other programs took {share_text(float(np.median(waited)))} of the processors' time"
    return (
        f"Not usable: {taken} in {len(waited)} of {count_text(len(ran), 'case')}. Run again when it is quiet."
    )


def account(rows: Sequence[Measurement], wall_s: float, parts_s: Mapping[str, float]) -> Iterator[str]:
    """How many cases have a time, why others have none, and where the wall time went.

    Ceilings that were skipped are left out, unless nothing else was measured.
    """
    if measurements := [row for row in rows if row.role == "measurement"]:
        ceilings = (row for row in rows if row.role != "measurement" and row.status != "skipped")
        rows = [*measurements, *ceilings]
    able = [row for row in rows if row.status != "unsupported"]
    timed, elsewhere = sum(row.status == "ok" for row in able), len(rows) - len(able)
    others = f"; {elsewhere:,} others cannot run on this device" if elsewhere else ""
    have = "has" if len(able) == 1 else "have"
    yield f"{timed:,} of {count_text(len(able), 'case')} {have} a time{others}"
    untimed = [row for row in able if row.status != "ok"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in untimed:
        reasons.setdefault((row.status, without_numbers(row.reason)), []).append(row.reason)
    # What failed comes before what nobody tried.
    order = sorted(reasons.items(), key=lambda item: (item[0][0] == "skipped", -len(item[1])))
    yield from (f"  {len(of)} {status}: {in_common(of)}" for (status, _), of in order[:REASONS])
    if len(reasons) > REASONS:
        yield f"  ... and {count_text(len(reasons) - REASONS, 'more reason')}, in the rows"
    named = {"measure_s": "measuring", "setup_s": "set-up", "check_s": "checking"}
    shares = [f"{what} {share_text(parts_s.get(part, 0.0) / wall_s)}" for part, what in named.items()]
    shares.append(f"the rest {share_text(max(0.0, 1 - sum(parts_s.values()) / wall_s))}")
    yield f"{duration_text(wall_s)}: {', '.join(shares)}"


def reached_sentence(run: DeviceRun) -> str:
    """What the ceilings of the run say of the device, in one sentence; empty without ceilings."""
    ceilings = run.measured_ceilings.get("cold")
    if ceilings is None:
        return ""
    reached = []
    if copy := ceilings.bandwidth_byte_per_s.get(0.5):
        speeds = ": its memory has two speeds, so shares of memory's roof are ranges" if copy.speeds else ""
        reached.append(f"copies {best_text(copy.median_per_s, copy.per_s, 'B/s')}{speeds}")
    peaks = {dtype: each for (kind, dtype), each in ceilings.peak_flop_per_s.items() if kind == "matrix"}
    if peaks:
        rates = {dtype: best_text(peak.median_per_s, peak.per_s, "FLOP/s") for dtype, peak in peaks.items()}
        listed = ", ".join(f"{rate} in {dtype}" for dtype, rate in rates.items())
        reached.append(f"multiplies matrices at {listed}")
    if ceilings.launch_s:
        # A CPU launches nothing: it is the time of a call into torch that computes next to nothing.
        does = "launches a kernel" if run.rows[0].device_kind == "cuda" else "calls a function of PyTorch"
        reached.append(f"{does} in {seconds_text(ceilings.launch_s)}")
    return f"{run.device_name} {'; '.join(reached)}." if reached else ""


def best_text(usual: float, best: float, unit: str) -> str:
    """`46.2 GB/s (80 GB/s at best)`: what tables show of its row, and the roof, where they differ."""
    texts = amount_text(usual, unit), amount_text(best, unit)
    return texts[1] if not texts[0] or texts[0] == texts[1] else f"{texts[0]} ({texts[1]} at best)"


def reached_text(row: Measurement, ceilings: Ceilings) -> str:
    """The share of its roof that a row reached; a range where visits to the roof differ."""
    share = reached(row, ceilings)
    most = reached(row, ceilings.slow)
    if share is None or most is None or most < (1 + VARIED) * share:
        return share_text(share)
    return f"{share_text(share).removesuffix(' %')} to {share_text(most)}"


def trust_lines(run: DeviceRun) -> Iterator[str]:
    """How many rows are suspect and by which flags, whether copies differ, how much the machine varied."""
    timed = [
        SUSPECT.intersection(flags) for row, flags in zip(run.rows, run.flags, strict=True) if row.is_timed
    ]
    # Sorted, so that flags of equal counts do not change places from one reading to the next.
    names = Counter(name for flags in timed for name in sorted(flags))
    suspect = sum(map(bool, timed))
    are = "is" if len(timed) == 1 else "are"
    by = f" ({', '.join(f'{count} {name}' for name, count in names.most_common())})" if names else ""
    if timed:
        yield f"{suspect} of {count_text(len(timed), 'time')} {are} suspect{by}"
    yield from noise_lines(run)
    yield from sentinel_lines(run.rows)


def noise_lines(run: DeviceRun) -> list[str]:
    """How much the machine varied in this run, and whose noise between runs its intervals hold."""
    text = scatter_text(zip(run.rows, run.within, strict=True))
    lines = [f"from visit to visit, 95 of 100 times changed by at most: {text}"] if text else []
    if published := sum(is_published(row) for row in run.rows if row.is_timed):
        lines.append(f"noise between runs of {count_text(published, 'time')}: {PUBLISHED}")
    return lines


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
