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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import ValidationError

from bench.case_name import case_key
from bench.judge.claim_lines import ClaimEffect, effect
from bench.judge.claim_rows import CASE, case_rows, claim_rows, holds
from bench.judge.claim_tests import both_sides, cluster_count, counts_memory
from bench.judge.columns import Bools, Columns
from bench.sweep.claims import Bound, Claim, Knee, Ratio, Share

if TYPE_CHECKING:
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
    judged = []
    for each in declared:
        of_sweep = rows.at(rows["sweep"].told(each.rows.__contains__))
        judged += [_judged(claim, each, of_sweep, runs) for claim in each.claims]
    return [each for each in judged if each is not None]


def _judged(claim: Claim, declared: Declared, rows: Columns, runs: Sequence[DeviceRun]) -> JudgedClaim | None:
    """The verdict on a claim by the timed rows of its sweep; None if it is not expected of its source."""
    test = claim.test[1]
    sound = ~rows["suspect"]
    if counts_memory(test):
        sound = np.full(rows.count, True)  # whatever made a time doubtful, memory was counted
    elif isinstance(test, Bound | Knee | Share):
        sound &= ~rows["above_roof"]
    other = _other_device(claim, runs[0])
    suspect = int((_wanted(rows, claim) & ~sound).sum()) if not (other or sound.all()) else 0

    def verdict(word: Verdict, reason: str = "", of: ClaimEffect | None = None) -> JudgedClaim:
        imported = all(run.imported for run in runs)
        names = tuple(run.run_id for run in runs)
        return JudgedClaim(runs[0].device, imported, declared, claim, word, reason, of, suspect, names)

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
    refusal, missing = _missing(claim, declared, rows, runs[0]) if untried or declared.cases else ("", "")
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


def _wanted(rows: Columns, claim: Claim) -> Bools:
    """Whether each of the rows, or cases, can take part in the test."""
    wanted = holds(rows, claim.where)
    if not isinstance(claim.test[1], Ratio):
        return wanted
    _, *sides = (holds(rows, select) for _, select in claim.selections())
    return np.asarray(wanted & np.logical_or.reduce(sides))


def _other_device(claim: Claim, run: DeviceRun) -> str:
    """Why the claim is not about this device; empty if it is."""
    about, (kind, capability) = claim.device, _device(run)
    if about.include(kind, capability):
        return ""
    if about.kind not in (None, kind):
        return f"about {about.kind} devices"
    have = ".".join(map(str, capability)) if capability else "none that is known"
    return f"about compute capability {about.capability}; this device has {have}"


def _device(run: DeviceRun) -> tuple[Literal["cpu", "cuda"], tuple[int, int] | None]:
    """(kind, compute capability) of the device of a run."""
    kind: Literal["cpu", "cuda"] = "cpu" if run.first.device_kind == "cpu" else "cuda"
    return kind, run.datasheet.capability if run.datasheet else None


def _missing(claim: Claim, declared: Declared, rows: Columns, run: DeviceRun) -> tuple[str, str]:
    """(why no case that is wanted runs on this device, or empty; which of those that do have no time)."""
    if not declared.cases:
        there = _wanted(rows, claim).any()
        return "", "its rows are not comparable in this way" if there else "no such rows"
    wanted = _wanted(case_rows(declared.cases, run.first.sm_count), claim)
    cases = [declared.cases[place] for place in np.flatnonzero(wanted).tolist()]
    refusals = [case.missing(*_device(run)) for case in cases]
    able = [case for case, refusal in zip(cases, refusals, strict=True) if not refusal]
    if not able:
        return refusals[0] if refusals else "the sweep has no such case on this device", ""
    timed = {case_key(*of) for of in zip(*(rows[name].tolist() for name in CASE), strict=True)}
    without = [case for case in able if case.key not in timed]
    such = f", such as {without[0].name}" if without else ""
    return "", f"{len(without)} of {len(able)} cases have no time{such}"
