"""The end of a run in the terminal: whether it is fit for use, what it found, how it went, and what is next.

`python -m bench table RESULT` prints every case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.case_name import row_name
from bench.cli import findings
from bench.cli.result_tables import case_table, side_lines
from bench.cli.run_lines import left_out_line
from bench.cli.terminal import wrapped
from bench.device.datasheet import find_datasheet
from bench.format import count_text
from bench.judge.claims import Declared, JudgedClaim, judge
from bench.judge.frame import DeviceRun
from bench.judge.implementations import is_own
from bench.judge.read_runs import runs
from bench.runner.run import Run
from bench.store.schema import Measurement

COLUMNS = 100
"""Columns in which sentences are wrapped at most."""
FINDINGS = 8
"""Most sentences on what a run found."""
FEW = 20
"""Cases of which each has a line in a table."""


def closing_lines(run: Run) -> Iterator[str]:
    """What to say at the end of a run."""
    places = {case.key: place for place, case in enumerate(run.cases.values())}
    rows = sorted(run.rows(), key=lambda row: places.get(row.case, len(places)))
    judged = next(iter(runs(rows, without_mixed=True)), None)
    if judged is not None:
        judged = replace(judged, datasheet=find_datasheet(judged.device_name))
    ended = [run.stopped, run.result.reason if run.result is not None else ""]
    for line in (*filter(None, ended), *_answers(run, judged)):
        yield from wrapped(line, COLUMNS)
    yield ""
    if judged is not None and _timed(judged):
        yield from _table(judged)
    for line in (*_went(run, judged), *_next(run, judged)):
        yield from wrapped(line, COLUMNS)


def _timed(run: DeviceRun) -> list[Measurement]:
    """The rows with a time of what was asked for: ceilings apart, unless there is nothing else."""
    asked = [row for row in run.rows if row.role == "measurement"]
    return [row for row in asked or run.rows if row.is_timed]


def _answers(run: Run, judged: DeviceRun | None) -> Iterator[str]:
    if judged is None or run.nothing_fitted:
        yield run.nothing_fitted or "Not fit for use: no case was measured."
        return
    there = {row.sweep for row in judged.rows if row.is_timed}
    claims = run.chosen.claims.items()
    declared = [Declared(name, (name,), of) for name, of in claims if name in there and of]
    yield from answer_lines(judged, judge([judged], declared) if declared else [])


def answer_lines(run: DeviceRun, claims: Sequence[JudgedClaim]) -> Iterator[str]:
    """Which kernel failed, whether a run is fit for use and, if it has a time, at most FINDINGS sentences."""
    yield from findings.failed_sentences(run)
    yield findings.fit_sentence(run)
    if not _timed(run):
        return
    found = [*findings.own_sentences(run), *filter(None, [findings.reached_sentence(run)])]
    told, others = _chosen(claims, max(0, FINDINGS - len(found)))
    yield from ("", *found, *map(findings.claim_sentence, told))
    open_claims = [each for each in claims if each.verdict == "UNDECIDED"]
    if rest := Counter(each.verdict for each in (*others, *open_claims)):
        yield f"More claims of the guides: {', '.join(f'{n} {word}' for word, n in rest.items())}."


def _chosen(claims: Sequence[JudgedClaim], most: int) -> tuple[list[JudgedClaim], list[JudgedClaim]]:
    """So many findings and the others: first one of each rule, else one rule has them all."""
    told = [each for verdict in findings.HOLDS for each in claims if each.verdict == verdict]
    rules = [str(each.claim.rules or each.claim.id) for each in told]
    before = [rules[:place].count(rule) for place, rule in enumerate(rules)]
    chosen = {*sorted(range(len(told)), key=before.__getitem__)[:most]}
    first, others = ([e for at, e in enumerate(told) if (at in chosen) is has] for has in (True, False))
    return first, others


def _table(run: DeviceRun) -> Iterator[str]:
    """Implementations side by side, of one alone its cases; of many cases nothing."""
    measured = [row for row in run.rows if row.role == "measurement" and row.status != "unsupported"]
    if 0 < len(measured) <= FEW:
        several = len({row.implementation for row in measured}) > 1
        lines = [*(side_lines(run) if several else case_table(run, ("measurement",)))]
        yield from lines if not lines[-1] else (*lines, "")  # a table ends with an empty line


def _went(run: Run, judged: DeviceRun | None) -> Iterator[str]:
    """How the run went: what has a time, how much times varied, and what is missing."""
    if judged is not None:
        yield from findings.account(judged.rows, run.elapsed_s)
        yield from findings.noise_lines(judged)
    yield from run.rounds.failure_limit.lines
    for cause, count in run.worker.renewed.most_common():
        yield f"worker replaced ({count_text(count, 'time')}): {cause}"
    if judged is None or not _timed(judged):
        return
    if run.result is None or run.result.journal is None:
        yield from left_out_line(run.rounds.left_out)
    if not any(row.role != "measurement" for row in judged.rows):
        yield 'no ceilings among these cases, so no roof: give -k "ceilings or (...)"'


def _next(run: Run, judged: DeviceRun | None) -> Iterator[str]:
    """The command to go on with; paths are never broken."""
    if run.result is not None and run.result.journal is not None:
        yield f"interrupted: these rows are safe in {run.result.journal}"
        yield "the next run turns them into a result file; --bench-resume goes on from there"
    timed = _timed(judged) if judged else []
    if run.path is not None and 0 < len(timed) <= FEW:
        case = next((row for row in timed if is_own(row.implementation)), timed[0])
        yield f"next: python -m bench explain {row_name(case)} {run.path}"
    elif run.path is not None:
        yield f"next: python -m plots report {run.path}" if timed else f"rows: {run.path}"
