"""What a run found, in sentences: whether it is fit for use, what the machine reaches, which claims hold."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress

import numpy as np

from bench.case_name import problem_name
from bench.format import (
    NOT_MEASURABLE,
    amount_text,
    count_text,
    duration_text,
    in_common,
    seconds_text,
    share_text,
    span_text,
    without_numbers,
)
from bench.judge.claim_lines import sizes
from bench.judge.claims import JudgedClaim, Verdict
from bench.judge.flags import CONTENDED, SUSPECT, waited_share
from bench.judge.frame import DeviceRun
from bench.judge.implementations import Side, is_own, side_by_side
from bench.judge.noise import PUBLISHED, is_published
from bench.judge.within_run import scatter_text
from bench.spec import is_custom
from bench.store.schema import Measurement

REASONS = 3
"""Most reasons why cases have no time that are given."""
HOLDS: Mapping[Verdict, str] = {
    "CONTRADICTED": "does not hold here",
    "PARTLY": "holds only in part",
    "SUPPORTED": "holds",
}
"""Verdicts that are findings, those first that one would not expect."""


def fit_sentence(run: DeviceRun) -> str:
    """Whether the times of the run are fit for use; of imported rows only how many are suspect.

    They are not where most are suspect, or others had the processors while most cases were measured.
    """
    timed = run.columns["median_s"].notna()
    ran = timed | run.columns["reason"].str.startswith(NOT_MEASURABLE)
    if not ran.any():
        outcomes = Counter(run.columns["status"])
        del outcomes["unsupported"]
        told = ", ".join(f"{count} {status}" for status, count in outcomes.most_common())
        told = f" ({told})" if told else ""
        return f"Not fit for use: no case has a time{told}."
    asked = ran & (run.columns["role"] == "measurement")
    asked = asked if asked.any() else ran
    shares = [] if run.is_plain else map(waited_share, compress(run.rows, asked))
    waited = [share for share in shares if share > CONTENDED]
    if run.first.device_kind == "cpu" and 2 * len(waited) > asked.sum():
        taken = f"other programs took {share_text(float(np.median(waited)))} of the processors' time"
        cases = f"{len(waited)} of {count_text(int(asked.sum()), 'case')}"
        return f"Not fit for use: {taken} in {cases}. Run again when it is quiet."
    # Sorted, so that flags of equal counts do not change places from one reading to the next.
    flags = [sorted(SUSPECT.intersection(of)) for of in compress(run.flags, timed) if of]
    names = Counter(name for of in flags for name in of)
    suspect, by = sum(map(bool, flags)), ", ".join(f"{count} {name}" for name, count in names.most_common())
    times = count_text(run.measured, "time")
    if not suspect:
        return "" if run.imported else f"Fit for use: none of {times} is suspect."
    told = f"{suspect} of {times} {'is' if suspect == 1 else 'are'} suspect ({by})."
    if run.imported:
        return told
    return f"Not fit for use: {told}" if 2 * suspect > run.measured else f"Fit for use, but {told}"


def reached_sentence(run: DeviceRun) -> str:
    """What the ceilings of the run say of the device; empty without ceilings."""
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


def claim_sentence(judged: JudgedClaim) -> str:
    """`ReLU is faster than tanh: 3.8 times (2.6 to 3.9) in 6 of 6 pairs. NVIDIA's advice holds (rule 26).`

    Of a verdict in HOLDS. That a claim does not hold stands before it, lest it be read as a fact. The numbers
    are the median of the claim's lines, and the least and the greatest of those that are decided.
    """
    claim, effect = judged.claim, judged.effect
    assert effect is not None
    holds = judged.verdict == "SUPPORTED"
    if effect.noun == "share":
        ends = span_text(share_text(effect.low), share_text(effect.high))
        measured = f"{share_text(effect.value)} of {count_text(effect.lines, 'row')} ({ends})"
        measured += "" if holds else f", where {claim.expect} was expected"
    else:
        measured = sizes([effect])
        if effect.low < effect.value < effect.high:  # the median of all lines, the ends of those decided
            digits = ".2f" if "^" in effect.unit else ".3g"
            low, middle, high = (f"{each:{digits}}" for each in (effect.low, effect.value, effect.high))
            measured = f"{effect.unit.format(middle)} ({low} to {high})"
        measured = measured.replace(" ~ ", " falls as " if effect.value < 0 else " grows as ")
        measured += "" if holds else f", {claim.expect} as expected"
        measured += f" in {effect.holding} of {count_text(effect.decided, effect.noun)}"
        measured += f", {effect.lines - effect.decided} undecided" if effect.lines > effect.decided else ""
        measured += f" (±{100 * effect.assumed:.2g} % assumed)" if effect.assumed else ""
        measured += f", {effect.exceptions}" if effect.exceptions else ""
    rules = f"rule{'s' * (len(claim.rules) > 1)} {', '.join(map(str, claim.rules))}"
    whose, where = ("NVIDIA's advice", rules) if claim.rules else ("What was expected", claim.id)
    told = f"{whose} {HOLDS[judged.verdict]} ({where})"
    if holds:
        return f"{claim.says}: {measured}. {told}."
    return f"{told}: {_within_a_sentence(claim.says)}; measured: {measured}."


def _within_a_sentence(says: str) -> str:
    """With a small first letter, if that begins no name: `one query`, but `ReLU` and `16-bit`."""
    first = says.split()[0]
    return says[0].lower() + says[1:] if first == "A" or first[1:].islower() else says


def failed_sentences(run: DeviceRun) -> Iterator[str]:
    """`mine:f crashed at rows64-length512: ...`: the first failure of each kernel of one's own."""
    custom = (row for row in _own_rows(run) if is_custom(row.implementation))
    failed = [row for row in custom if row.status not in ("ok", "skipped")]
    for row in {row.implementation: row for row in reversed(failed)}.values():
        yield f"{row.implementation}: {row.status} at {_size(row.parameters)}: {row.reason}"


def own_sentences(run: DeviceRun) -> Iterator[str]:
    """`mine:f is right; it takes 4.02 times the time of aten at rows4096-length1024 (3.4 to 4.6).`

    One for each kernel of one's own or of ours that did not fail: where it is furthest behind the fastest
    library, and where least.
    """
    sides = list(side_by_side(run))
    for name in dict.fromkeys(row.implementation for row in _own_rows(run)):
        mine = [row for row in _own_rows(run) if row.implementation == name]
        ran = any(row.is_timed or row.reason.startswith(NOT_MEASURABLE) for row in mine)
        if not ran or any(row.status not in ("ok", "skipped") for row in mine):
            continue
        beside = [(of[name], problem, of) for problem, of in sides if name in of]
        beside = sorted((each for each in beside if not math.isnan(each[0].ratio)), key=lambda e: -e[0].ratio)
        told = [f"{_times(side, of)} at {_size(problem[1])}" for side, problem, of in beside]
        unknown = "no sound time of it stands beside a library's"
        ends = f"it takes {' and '.join(told if len(told) < 3 else (told[0], told[-1]))}" if told else unknown
        yield f"{name} is right; {ends}."


def _own_rows(run: DeviceRun) -> list[Measurement]:
    rows = (row for row in run.rows if row.role == "measurement" and row.status != "unsupported")
    return [row for row in rows if is_own(row.implementation)]


def _times(side: Side, of: Mapping[str, Side]) -> str:
    interval = f"{side.low:.2f} to {side.high:.2f}" if side.low else "without an interval"
    return f"{side.ratio:.2f} times the time of {fastest_library(of)} ({interval})"


def fastest_library(of: Mapping[str, Side]) -> str:
    """The library with which the others are compared: the faster of cuBLAS and Inductor, say."""
    libraries = {name: side.median_s for name, side in of.items() if not is_own(name)}
    return min(libraries, key=lambda name: libraries[name], default="")


def _size(parameters: str) -> str:
    return problem_name(json.loads(parameters))


def account(rows: Sequence[Measurement], wall_s: float) -> Iterator[str]:
    """How many cases have a time and how long that took; why others have none.

    Ceilings that were skipped are left out, unless nothing else was measured.
    """
    if any(row.role == "measurement" and row.status != "unsupported" for row in rows):
        measurements = [row for row in rows if row.role == "measurement"]
        ceilings = (row for row in rows if row.role != "measurement" and row.status != "skipped")
        rows = [*measurements, *ceilings]
    able = [row for row in rows if row.status != "unsupported"]
    timed, elsewhere = sum(row.status == "ok" for row in able), len(rows) - len(able)
    others = f"; {count_text(elsewhere, 'other')} cannot run on this device" if elsewhere else ""
    have = "has" if len(able) == 1 else "have"
    yield f"{timed:,} of {count_text(len(able), 'case')} {have} a time, in {duration_text(wall_s)}{others}."
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in able:
        if row.status != "ok":
            reasons.setdefault((row.status, without_numbers(row.reason)), []).append(row.reason)
    # What failed comes before what nobody tried.
    order = sorted(reasons.items(), key=lambda item: (item[0][0] == "skipped", -len(item[1])))
    yield from (f"  {len(of)} {status}: {in_common(of)}" for (status, _), of in order[:REASONS])
    if len(reasons) > REASONS:
        yield f"  ... and {count_text(len(reasons) - REASONS, 'more reason')}, in the rows"


def noise_lines(run: DeviceRun) -> list[str]:
    """How much the machine varied in this run, and whose noise between runs its intervals hold."""
    text = "" if run.is_plain else scatter_text(zip(run.rows, run.within, strict=True))
    lines = [f"from visit to visit, 95 of 100 times changed by at most: {text}"] if text else []
    if published := sum(compress(run.each(is_published), run.columns["median_s"].notna())):
        lines.append(f"noise between runs of {count_text(published, 'time')}: {PUBLISHED}")
    return lines
