"""Verdicts on claims: what the rows of a device say about the statements of the documents.

*   SUPPORTED: every line that is decided is as the claim expects. CONTRADICTED: most are not. PARTLY: some
    are not, and the verdict says where. UNDECIDED: most of the lines are not decided, or half of them are and
    none of these fails.
*   TOO FEW: fewer lines than the claim asks for.
*   NOT MEASURED: not one, and the cases that are missing could be measured here.
*   NOT APPLICABLE: the claim is about other devices, or nothing that it is about runs on this one.

A line is decided by the noise of its own rows (`bench.judge.claim_lines`). Bars, selections and least numbers
stand in the sweep's file, which is older than the run. Rows whose time a flag makes suspect are left out, and
counted; a row that is quicker than its roof only where rows are compared with roofs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bench.case_name import case_key
from bench.judge.claim_lines import ClaimEffect, effect
from bench.judge.claim_rows import CASE, UNKNOWN, case_rows, claim_rows, holds
from bench.judge.claim_tests import both_sides, cluster_count, counts_memory
from bench.spec import ITEM_BYTE
from bench.sweep.claims import Bound, Claim, Knee, Ratio, Share

if TYPE_CHECKING:
    import pandas as pd

    from bench.judge.frame import DeviceRun
    from bench.sweep.load import Case

WithEffect = Literal["SUPPORTED", "PARTLY", "CONTRADICTED", "UNDECIDED"]
"""Verdicts that rest on enough rows."""
Verdict = WithEffect | Literal["TOO FEW", "NOT MEASURED", "NOT APPLICABLE"]
WITH_EFFECT: tuple[WithEffect, ...] = get_args(WithEffect)
VERDICTS: tuple[Verdict, ...] = (*WITH_EFFECT, "TOO FEW", "NOT MEASURED", "NOT APPLICABLE")
"""All, in the order in which they are shown."""

Written = Literal["before the run", "after the run", "in the result"]
"""Whether the rows' own file has the same claims, so that they stood before the rows were measured; `in the
result`: only there, since the checkout lacks the sweep."""


class Declared(NamedTuple):
    """The claims of one sweep, or of one imported table."""

    name: str
    rows: Collection[str]
    """The names that its rows have in the column `sweep`."""
    claims: Sequence[Claim]
    cases: Sequence[Case] = ()
    """Its cases on this device; none for an imported table, and for claims read from a result alone."""
    written: Written = "after the run"


@dataclass(frozen=True)
class JudgedClaim:
    """One claim on one device."""

    device: str
    imported: bool
    declared: Declared
    claim: Claim
    verdict: Verdict
    reason: str = ""
    """Why there is no more: for TOO FEW, NOT MEASURED and NOT APPLICABLE."""
    effect: ClaimEffect | None = None
    suspect: int = 0
    """Rows that would have taken part and were left out."""
    runs: tuple[str, ...] = ()
    """The names of the runs that were judged."""


def kept(name: str, sweep: Mapping[str, Any]) -> Declared | None:
    """The claims that a result file keeps of one of its sweeps; None if they have no test, as in older files.

    `sweep` is what the sweep declared (`bench.store.parquet.Sweeps`).
    """
    try:
        claims = [Claim.model_validate(claim) for claim in sweep.get("claims", ())]
    except ValidationError:
        return None
    return Declared(name, (name,), claims, written="in the result")


def judge(runs: Sequence[DeviceRun], declared: Sequence[Declared]) -> list[JudgedClaim]:
    """Every claim on the runs of one device, in the order given. UserError if they are of several.

    Of an imported source, which is not expected to cover all claims, those that its rows say something of.
    """
    rows = claim_rows(runs)
    untimed = cache(partial(_untimed, runs[0]))
    sweeps = [
        _SweepRows(each, rows[rows["sweep"].isin(each.rows)].reset_index(drop=True), runs, untimed)
        for each in declared
    ]
    judged = [_judged(claim, sweep) for sweep in sweeps for claim in sweep.declared.claims]
    return [each for each in judged if each is not None]


@dataclass(frozen=True)
class _SweepRows:
    """What the runs of a device have of one sweep."""

    declared: Declared
    timed: pd.DataFrame
    runs: Sequence[DeviceRun]
    untimed: Callable[[], pd.DataFrame]
    """All rows of the device, timed or not, for sweeps without cases."""

    @cached_property
    def expected(self) -> pd.DataFrame:
        """The sweep's cases as rows; without cases its untimed rows. Most claims need none."""
        if self.declared.cases:
            return case_rows(self.declared.cases, self.runs[0].first.sm_count)
        rows = self.untimed()
        return rows[rows["sweep"].isin(self.declared.rows)]


def _judged(claim: Claim, sweep: _SweepRows) -> JudgedClaim | None:
    """The verdict on a claim; None if it is not expected of its source."""
    test, rows, runs = claim.test[1], sweep.timed, sweep.runs
    sound = ~rows["suspect"].to_numpy(dtype=bool)
    if counts_memory(test):
        sound = np.full(len(rows), True)  # whatever made a time doubtful, memory was counted
    elif isinstance(test, Bound | Knee | Share):
        sound &= ~rows["above_roof"].to_numpy(dtype=bool)
    other = _other_device(claim, runs)
    suspect = int((_wanted(rows, claim) & ~sound).sum()) if not (other or sound.all()) else 0

    def verdict(word: Verdict, reason: str = "", of: ClaimEffect | None = None) -> JudgedClaim:
        imported = all(run.imported for run in runs)
        names = tuple(run.run_id for run in runs)
        return JudgedClaim(runs[0].device, imported, sweep.declared, claim, word, reason, of, suspect, names)

    seen, against = both_sides(claim, rows, sound & (not other))
    clusters = cluster_count(test, seen, against)
    of = effect(claim, rows, sound, seen, against)
    if of is None and runs[0].is_alone:
        return None
    if other:
        return verdict("NOT APPLICABLE", other)
    if of is not None and clusters >= claim.least:
        return verdict(_word(of), of=of)
    untried = clusters == 0 and not suspect
    refusal, missing = _missing(claim, sweep) if untried or sweep.declared.cases else ("", "")
    if untried:
        return verdict("NOT APPLICABLE", refusal) if refusal else verdict("NOT MEASURED", missing)
    return verdict("TOO FEW", "; ".join(filter(None, [f"{clusters} of {claim.least}", missing])), of)


def _word(of: ClaimEffect) -> Verdict:
    # What is decided against a claim about all lines counts from half of them on; what is for it, from more.
    if 2 * of.decided < of.lines + (not of.failing):
        return "UNDECIDED"
    if not of.failing:
        return "SUPPORTED"
    return "CONTRADICTED" if of.failing > of.holding else "PARTLY"


def _wanted(rows: pd.DataFrame, claim: Claim) -> npt.NDArray[np.bool_]:
    """Whether each of the rows, or cases, can take part in the test."""
    wanted, test = holds(rows, claim.where), claim.test[1]
    if not isinstance(test, Ratio):
        return wanted
    ratios = (test, test.less) if test.less else (test,)
    sides = [holds(rows, select) for ratio in ratios for select in (ratio.of, ratio.to)]
    return np.asarray(wanted & np.logical_or.reduce(sides))


def _other_device(claim: Claim, runs: Sequence[DeviceRun]) -> str:
    """Why the claim is not about this device; empty if it is."""
    kind, least = runs[0].first.device_kind, claim.device.capability
    if claim.device.kind not in (None, kind):
        return f"about {claim.device.kind} devices"
    if least is None:
        return ""
    sheet = runs[0].datasheet
    if kind != "cuda" or sheet is None or sheet.capability is None:
        return f"about compute capability {least}; this device's is unknown"
    have = ".".join(map(str, sheet.capability))
    met = claim.device.include(kind, sheet.capability)
    return "" if met else f"about compute capability {least}; this device has {have}"


def _untimed(run: DeviceRun) -> pd.DataFrame:
    """All rows, timed or not, without the columns that a row without a time lacks."""
    rows = run.columns.assign(item_byte=run.columns["dtype"].map(ITEM_BYTE))
    return rows.drop(columns=[name for name in UNKNOWN if name in rows])


def _missing(claim: Claim, sweep: _SweepRows) -> tuple[str, str]:
    """(why no case that is wanted runs on this device, or empty; which of those that do have no time)."""
    run, cases = sweep.runs[0], sweep.declared.cases
    if not cases and (count := int(_wanted(sweep.timed, claim).sum())):
        return "", f"no two of {count} rows are comparable in this way" if count > 1 else "only one such row"
    wanted = _wanted(sweep.expected, claim)
    if not cases:
        refused = sweep.expected[wanted & (sweep.expected["status"] == "unsupported")]
        if len(refused) and len(refused) == wanted.sum():
            return str(refused["reason"].iloc[0] or "unsupported"), ""
        return "", "no such rows"
    capability = run.datasheet.capability if run.datasheet else None
    kind: Literal["cpu", "cuda"] = "cpu" if run.first.device_kind == "cpu" else "cuda"
    asked = [
        (cases[place], cases[place].missing(kind, capability)) for place in np.flatnonzero(wanted).tolist()
    ]
    able = [case for case, refusal in asked if not refusal]
    if not able:
        return asked[0][1] if asked else "the sweep has no such case on this device", ""
    there = {case_key(*of) for of in zip(*(sweep.timed[name] for name in CASE), strict=True)}
    without = [case for case in able if case.key not in there]
    if not without:
        return "", f"all {len(able)} cases are measured, and too few of them are comparable in this way"
    return "", f"{len(without)} of {len(able)} cases have no time, such as {without[0].name}"
