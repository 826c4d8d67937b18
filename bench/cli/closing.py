"""The end of a run in the terminal: what the machine reaches and its rows decide, and where everything is.

At most LINES lines of COLUMNS columns. `python -m bench table RESULT` prints every case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.case_name import row_name
from bench.cli.result_tables import beside_lines
from bench.cli.run_lines import left_out_lines
from bench.cli.run_summary import (
    account,
    case_table,
    rate_text,
    reached_sentence,
    reached_text,
    trust_lines,
    unusable_line,
)
from bench.cli.terminal import columns, wrapped
from bench.device.datasheet import find_datasheet
from bench.format import NOT_MEASURABLE, end_of, half_text, seconds_text
from bench.judge.claims import VERDICTS, WITH_EFFECT, Declared, JudgedClaim, judge
from bench.judge.frame import DeviceRun, runs
from bench.runner.run import Run
from bench.store.schema import Measurement

LINES, COLUMNS = 25, 100
FEW = 10
"""Cases that are shown one by one: of so few no claim can be judged."""


def closing_lines(run: Run, *, every_case: bool = False) -> Iterator[str]:
    """What to say at the end of a run; with `every_case` its table first."""
    if rows := _in_order(run):
        (judged_run,) = runs(rows, without_mixed=True)
        judged_run = replace(judged_run, datasheet=find_datasheet(judged_run.device_name))
        if every_case:
            yield from (*case_table(judged_run), "")
        for line in _run_lines(run, judged_run):
            yield from wrapped(line, COLUMNS)
    else:
        yield run.nothing_fitted or "no case was measured"
    yield from _places(run)
    if run.stopped:
        yield run.stopped
    if run.result is not None and run.result.reason:
        yield run.result.reason
    if (journal := _journal(run)) is not None:
        yield f"interrupted: these rows are safe in {journal}"
        yield "the next run turns them into a result file; --bench-resume goes on from there"


def _journal(run: Run) -> Path | None:
    """The journal of a run that has no result file."""
    return None if run.result is None else run.result.journal


def _in_order(run: Run) -> list[Measurement]:
    places = {case.key: place for place, case in enumerate(run.cases.values())}
    return sorted(run.rows(), key=lambda row: places.get(row.case, len(places)))


def _run_lines(run: Run, judged_run: DeviceRun) -> Iterator[str]:
    facts = list(_facts(run, judged_run))
    yield from filter(None, (run.nothing_fitted, unusable_line(judged_run), reached_sentence(judged_run)))
    yield from _results(run, judged_run, LINES - len(facts) - 5)
    yield ""
    yield from facts


def _results(run: Run, judged_run: DeviceRun, most: int) -> Iterator[str]:
    """The verdicts on the claims that the rows decide; of few cases their times."""
    ran = (row for row in judged_run.rows if row.is_timed or row.reason.startswith(NOT_MEASURABLE))
    timed = [row for row in ran if row.role == "measurement"]
    if 0 < len(timed) <= FEW:
        yield from ("", *beside_lines(judged_run))
        yield from (_case_line(row, judged_run) for row in timed)
        return
    there = {row.sweep for row in timed}
    declared = [
        Declared(name, (name,), claims) for name, claims in run.chosen.claims.items() if name in there
    ]
    judged = judge([judged_run], declared) if any(each.claims for each in declared) else []
    shown = sorted(
        (each for each in judged if each.verdict in WITH_EFFECT), key=lambda e: VERDICTS.index(e.verdict)
    )
    if not shown:
        return
    yield from ("", "What the guides say, and what these rows say of it:")
    yield from map(_verdict_line, shown[:most])
    rest = Counter(each.verdict for each in shown[most:])
    more = ", ".join(f"{count} {word}" for word, count in rest.items())
    yield f"... {'and ' + more if more else 'all claims'}: python -m bench claims {run.path or 'RESULT'}"


def _case_line(row: Measurement, run: DeviceRun) -> str:
    share = reached_text(row, run.roof_of(row))
    times = f"{seconds_text(row.median_s):>8} {half_text(row.median_s, *run.run_ends_s(row)):>8}"
    of_roof = f"{share} of roof" if share else ""
    numbers = f"{times} {rate_text(row):>14} {of_roof:<14}" if row.is_timed else NOT_MEASURABLE
    room = min(COLUMNS, columns() or COLUMNS) - len(numbers) - 1
    name = row_name(row)
    if len(name) > room:  # implementations stand at the beginning, sizes at the end
        name = f"{name[: room // 2]}…{end_of(name, room - room // 2)[1:]}"
    return f"{name:<{room}} {numbers}".rstrip()


def _verdict_line(judged: JudgedClaim) -> str:
    rules = ", ".join(map(str, judged.claim.rules)) or judged.claim.id
    line = f"{rules:<8.8} {judged.verdict:<12} {judged.effect!s:<38} {judged.claim.says}"
    most = min(COLUMNS, columns() or COLUMNS)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _facts(run: Run, judged_run: DeviceRun) -> Iterator[str]:
    """How the run went: what has a time, how far to trust it, what is missing, and where the rows are."""
    rows = judged_run.rows
    yield from account(rows, run.elapsed_s, run.parts_s)
    yield from trust_lines(judged_run)
    if _journal(run) is None:
        yield from left_out_lines(run.rounds.left_out)
    yield from run.rounds.failure_limit.lines
    for cause, count in run.worker.renewed.most_common():
        yield f"worker replaced {'once' if count == 1 else f'{count} times'}: {cause}"
    there = {row.case for row in rows if row.status != "skipped"}
    roofs = [case for case in run.requested if case.role == "roof"]
    missing = [case.name for case in roofs if case.key in run.chosen.added and case.key not in there]
    if missing and _journal(run) is None:
        yield f"no time for these roofs, so shares of them are missing: {', '.join(missing)}"
    elif not any(row.role != "measurement" for row in rows):
        yield 'no ceilings among these cases, so no roof: give -k "ceilings or (...)"'


def _places(run: Run) -> Iterator[str]:
    """The paths of the rows, and the commands that show them; paths are never broken."""
    if run.path is not None:
        yield f"rows: {run.path}"
        yield f"every case: python -m bench table {run.path}"
        yield f"one page to look at: python -m plots report {run.path}"
        yield f"figures: python -m plots {run.path}"
