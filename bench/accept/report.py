"""What `python -m bench accept` says of a unit: one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, Verdict
from bench.accept.readings import NO_INTERVAL, unit_of
from bench.cli.table import table_lines
from bench.format import amount_text, count_text, seconds_text, span_text

WORST_FIRST: tuple[Verdict, ...] = ("IMPLAUSIBLE", "FAIL", "LOW", "PASS", "UNKNOWN")


def exit_code(judged: Sequence[JudgedKind]) -> int:
    """0: all that could be judged passes. 1: something is LOW, FAIL or IMPLAUSIBLE. 2: rows were not fit."""
    return {"PASS": 0, "UNKNOWN": 2}.get(overall(judged), 1)


def lines(judged: Sequence[JudgedKind]) -> Iterator[str]:
    """The verdict in a sentence, a row for each kind of work, and what may be the cause."""
    yield f"{judged[0].row.device_name}: {overall(judged)}: {sentence(judged)}"
    names = ("kind of work", "verdict", ">measured", ">expected", ">promised", "by")
    rows = []
    for each in judged:
        measured, promised = (figure(each.kind, rate) for rate in (each.row.rate, each.promised))
        by = each.expects.by if each.expects else ""
        rows.append((each.kind, each.verdict, measured, range_text(each.kind, each.expects), promised, by))
    yield from table_lines(names, rows)
    for each in judged:
        if each.causes:
            yield f"{each.kind}: {'; '.join(each.causes)}"


def overall(judged: Sequence[JudgedKind]) -> Verdict:
    """The worst verdict of those that could be judged; UNKNOWN if none could, or one was disturbed."""
    worst = min((each.verdict for each in judged), key=WORST_FIRST.index)
    # Only a quiet machine tells of these kinds.
    disturbed = any(each.row.unfit not in ("", NO_INTERVAL) for each in judged)
    return "UNKNOWN" if worst == "PASS" and disturbed else worst


def sentence(judged: Sequence[JudgedKind]) -> str:
    """How many kinds of work have each verdict: `of 5 kinds of work 1 FAIL, 2 PASS, 2 UNKNOWN`."""
    counts = Counter(each.verdict for each in judged)
    shown = (f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if verdict in counts)
    return f"of {count_text(len(judged), 'kind')} of work {', '.join(shown)}"


def figure(kind: str, rate: float | None) -> str:
    """A rate, or of launches the time."""
    if rate is None:
        return ""
    return seconds_text(1 / rate) if unit_of(kind) == "1/s" else amount_text(rate, unit_of(kind))


def range_text(kind: str, expects: ExpectedRates | None) -> str:
    """`650 to 790 TFLOP/s`; `unknown` if nothing says what to expect."""
    if expects is None:
        return "unknown"
    ends = (expects.high, expects.low) if unit_of(kind) == "1/s" else (expects.low, expects.high)
    return span_text(*(figure(kind, end) for end in ends))
